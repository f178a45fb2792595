"""Lets glibc keep the memory that a training step frees."""

from __future__ import annotations

import ctypes
import os
import sys

# Variables of glibc's allocator: where one is set, vlcli leaves its thresholds alone
VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")
# Parameters from which a model's gradients are worth keeping; smaller ones lie below glibc's own thresholds
LARGE = 10_000_000
# By default glibc returns freed arrays of 32 MiB and more to the system, and a step faults their pages in again.
_THRESHOLDS = {-3: 2**30, -1: 2**31 - 1}  # bytes; M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h


def can_keep_freed_memory() -> bool:
    """Whether this process runs on glibc and none of ``VARIABLES`` is set."""
    glibc = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
    return glibc and not any(name in os.environ for name in VARIABLES)


def keep_freed_memory(parameters: int) -> bool:
    """Raise glibc's thresholds for a model of ``LARGE`` parameters or more; return whether they were raised."""
    if parameters < LARGE or not can_keep_freed_memory():
        return False
    return all(ctypes.CDLL(None).mallopt(option, size) for option, size in _THRESHOLDS.items())
