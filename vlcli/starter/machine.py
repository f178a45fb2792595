"""Measures this machine: processors, a GPU, and the seconds that work takes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import median

from vlcli.ahead import usable_cores

_SECOND_CORE = 0.4  # speed that a further core adds to convolutions
_LONG = 2.0  # seconds above which the first call counts, although it warms up


@dataclass(frozen=True)
class Machine:
    """The machine on which a recipe will run: processor cores of this process, first CUDA device (empty: none)."""

    cores: int
    gpu: str

    @property
    def text(self) -> str:
        cores = f"{self.cores} processor core{'s' if self.cores > 1 else ''}"
        return f"{cores} and {self.gpu}" if self.gpu else f"{cores}, no GPU"


def this_machine() -> Machine:
    """Return cores and GPU of this machine."""
    import torch

    return Machine(len(usable_cores()), torch.cuda.get_device_name(0) if torch.cuda.is_available() else "")


def usual_seconds(work: Callable[[], object]) -> float:
    """Return the median seconds of up to five calls after the first, on the GPU, or as processor time of one thread."""
    import torch

    gpu, threads = torch.cuda.is_available(), torch.get_num_threads()
    clock = time.perf_counter if gpu else time.process_time
    seconds: list[float] = []
    torch.set_num_threads(1)
    try:
        while len(seconds) < 6 and sum(seconds) < _LONG:
            began = clock()
            work()
            torch.cuda.synchronize() if gpu else None
            seconds.append(clock() - began)
    finally:
        torch.set_num_threads(threads)
    return median(seconds[1:] or seconds)


@cache
def seconds_a_picture(arch: str, cores: int) -> float:
    """Return the seconds in which a backbone extracts features of a random photograph on an idle machine."""
    import numpy as np
    import torch
    from PIL import Image

    from vlcli import registry
    from vlcli.detection.extractor import Extractor

    spec = {"name": "backbone", "arch": arch, "short": 256, "long": 427, "boxes": "grid", "grid": [6, 6]}
    gpu = torch.cuda.is_available()
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (427, 640, 3), np.uint8))
    extractor = registry.of(Extractor).build(spec).to("cuda" if gpu else "cpu")
    seconds = usual_seconds(lambda: extractor.extract([extractor.prepare(picture, None)]))
    return seconds / (1.0 if gpu else 1 + _SECOND_CORE * (cores - 1))
