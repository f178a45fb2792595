"""Measures this machine: processors, a GPU, and operations a second."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from functools import cache

_SECOND_CORE = 0.8
"""Speed that a further core adds to convolutions."""


@dataclass(frozen=True)
class Machine:
    """The machine on which a recipe will run.

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
        """Cores and GPU in words."""
        cores = f"{self.cores} processor core{'s' if self.cores > 1 else ''}"
        return f"{cores} and {self.gpu}" if self.gpu else f"{cores}, no GPU"


def this_machine() -> Machine:
    """Measure this machine; takes a fraction of a second (and torch's import)."""
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
        float((left @ left)[0, 0])  # waits for the device
        rates.append(threads * side**3 / max(clock() - began, 1e-9))
    return Machine(cores, gpu, statistics.median(rates))


@cache
def seconds_a_picture(arch: str, cores: int) -> float:
    """Return the seconds in which a backbone extracts features of an invented photograph where nothing else runs.

    Args:
        arch: the backbone, as recipes name it.
        cores: that extraction may use.
    """
    import numpy as np
    import torch
    from PIL import Image

    from vlcli import registry
    from vlcli.detection.extractor import Extractor

    spec = {"name": "backbone", "arch": arch, "short": 256, "long": 427, "boxes": "grid", "grid": [6, 6]}
    gpu, threads = torch.cuda.is_available(), torch.get_num_threads()
    clock = time.perf_counter if gpu else time.process_time  # processor time leaves out other programs
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (427, 640, 3), np.uint8))
    try:
        torch.set_num_threads(1)
        extractor = registry.of(Extractor).build(spec).to("cuda" if gpu else "cpu")
        seconds = []
        for _ in range(3):
            began = clock()
            extractor.extract([extractor.prepare(picture, None)])
            seconds.append(clock() - began)
    finally:
        torch.set_num_threads(threads)
    return min(seconds) / (1.0 if gpu else 1 + _SECOND_CORE * (cores - 1))
