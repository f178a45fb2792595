"""RoIAlign by bilinear sampling beside torchvision's operator: forward and backward on one map.

    python benchmarks/roi_align.py

The map of the quickstart's detector: 16 pictures of 128 pixels, 128 channels of stride 8, 32 boxes each, 5 x 5 cells of
one sample. Both are taken in turn on one thread and must agree. Prints the processor time and the ratio.
"""

from __future__ import annotations

import argparse
import time

import torch
from in_turn import report
from torchvision.ops import MultiScaleRoIAlign
from vlcli_torchvision.pooling import SampledRoIAlign

SIDE, STRIDE = 128, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=16)
    parser.add_argument("--boxes", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    maps = torch.randn(args.pictures, 128, SIDE // STRIDE, SIDE // STRIDE, requires_grad=True)
    boxes = [torch.rand(args.boxes, 2, 2).sort(1).values.flatten(1) * SIDE for _ in range(args.pictures)]
    sizes = [(SIDE, SIDE)] * args.pictures
    pools = {"sampling": SampledRoIAlign("0", 5, 1, STRIDE), "torchvision": MultiScaleRoIAlign(["0"], 5, 1)}
    times: dict[str, list[float]] = {name: [] for name in pools}
    for number in range(args.rounds + 1):
        made = {}
        for name, pool in pools.items():
            begun = time.process_time()
            cells = pool({"0": maps}, boxes, sizes)
            made[name] = cells, torch.autograd.grad(cells.square().sum(), maps)[0]
            times[name] += [time.process_time() - begun] if number else []
        torch.testing.assert_close(*made.values(), rtol=1e-3, atol=1e-4)
    report(times)


if __name__ == "__main__":
    main()
