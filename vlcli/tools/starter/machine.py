"""What this machine can do: processors, a GPU, and how many operations a second."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """What a recipe may count on.

    Attributes:
        cores: processor cores this process may use.
        gpu: name of the first CUDA device; empty where there is none.
        rate: multiply-adds a second in float32 where nothing else runs, measured on a product of matrices.
    """

    cores: int
    gpu: str
    rate: float

    @property
    def text(self) -> str:
        """In words."""
        cores = f"{self.cores} processor core{'s' if self.cores > 1 else ''}"
        return f"{cores} and {self.gpu}" if self.gpu else f"{cores}, no GPU"


def this_machine() -> Machine:
    """Look at this machine; takes a fraction of a second (and torch's import)."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    device, side = ("cuda", 4096) if gpu else ("cpu", 512)
    left = torch.ones(side, side, device=device)
    # Processor time leaves out other programs: the same machine gives the same estimate while it is busy.
    clock, threads = (time.perf_counter, 1) if gpu else (time.process_time, torch.get_num_threads())
    rates = []
    for _ in range(12):
        began = clock()
        product = left @ left
        float(product[0, 0])  # waits for the device
        rates.append(threads * side**3 / max(clock() - began, 1e-9))
    return Machine(cores, gpu, statistics.median(rates))
