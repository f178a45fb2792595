"""What benchmarks need to run on a processor or on a GPU alike."""

from __future__ import annotations

import time

import torch


def now(device: str) -> float:
    """Seconds: of processor time, which a busy neighbour disturbs least; on a GPU of the clock, once it is idle."""
    if not device.startswith("cuda"):
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()
