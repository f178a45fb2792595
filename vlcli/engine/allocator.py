"""Lets glibc keep the memory that a step on a CPU frees."""

from __future__ import annotations

import ctypes
import os
import sys

# Variables of glibc's allocator: where one is set, vlcli leaves its thresholds alone
VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")
# By default glibc returns freed arrays of 32 MiB and more to the system, and a step faults their pages in again.
_THRESHOLDS = {-3: 2**30, -1: 2**31 - 1}  # bytes; M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h


def can_keep_freed_memory() -> bool:
    """Whether this process runs on glibc and none of ``VARIABLES`` is set."""
    glibc = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
    return glibc and not any(name in os.environ for name in VARIABLES)


def keep_freed_memory() -> bool:
    """Raise the thresholds, for gradients of large models and for maps of pictures; return whether they were raised."""
    return can_keep_freed_memory() and all(map(ctypes.CDLL(None).mallopt, _THRESHOLDS, _THRESHOLDS.values()))
