"""A step of `muon` beside one of torch.optim.Muon, on the matrices of a small LXMERT.

    python benchmarks/muon.py
    python benchmarks/muon.py --width 768

torch takes one matrix after another, `muon` those of one shape together. Both are taken in turn on one thread, with the
layers of the quickstart. Prints the processor time and the ratio.
"""

from __future__ import annotations

import argparse
import time

import torch
from in_turn import report
from torch import nn

from vlcli.engine.optimizers import Muon

SQUARES, FEEDS = 36, 7  # projections of attention; feed-forward networks of two matrices


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    wide = [(args.width, args.width)] * SQUARES
    shapes = wide + [(4 * args.width, args.width), (args.width, 4 * args.width)] * FEEDS
    sets = [[nn.Parameter(0.1 * torch.randn(shape)) for shape in shapes] for _ in range(2)]
    group = {"params": sets[0], "names": [str(i) for i in range(len(shapes))], "matrices": True, "weight_decay": 0.01}
    torch_s = torch.optim.Muon(sets[1], 1e-3, 0.01, adjust_lr_fn="match_rms_adamw")
    optimizers = {"muon": Muon([group], 1e-3, 0.95, (0.9, 0.999), 1e-8), "torch": torch_s}
    times: dict[str, list[float]] = {name: [] for name in optimizers}
    for number in range(args.rounds + 1):
        for (name, optimizer), parameters in zip(optimizers.items(), sets, strict=True):
            for p in parameters:
                p.grad = p.detach().cos()
            begun = time.process_time()
            optimizer.step()
            times[name] += [time.process_time() - begun] if number else []
    report(times)


if __name__ == "__main__":
    main()
