"""What the training loop costs beside a bare one: ``python benchmarks/training.py [--steps N] [--hidden D]``.

Both train the same small model on the same ready batches with fused AdamW; the loop adds seeding, finite checks,
schedules and logging (no checkpoint is written). Rounds are interleaved and the medians of processor time compared,
which neighbours disturb least.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from itertools import chain, islice
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.engine.parts import DATA_SPEC, FakeData, config
from vlcli.engine.trainer import Trainer
from vlcli.engine.training_module import build_training_module

OBJECTIVES = ["engine-words", "engine-contrast"]


def module(hidden: int):
    return build_training_module({"name": "engine-tiny", "hidden": hidden, "layers": 4}, OBJECTIVES, DATA_SPEC)


class Ready:
    """Batches that were made before: what is timed is the loop, not the data."""

    def __init__(self, data: FakeData, steps: int) -> None:
        self.size = len(data)
        epochs = -(-steps * 64 // self.size)
        self.epochs = [list(data.loader(64, shuffle=True, epoch=epoch)) for epoch in range(epochs)]

    def __len__(self) -> int:
        return self.size

    def loader(self, size: int, *, epoch: int, start_batch: int, **_: object):
        return iter(self.epochs[epoch][start_batch:])


def bare(steps: int, hidden: int, data: Ready) -> float:
    model = module(hidden).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = chain.from_iterable(data.epochs)
    begun = time.process_time()
    for batch in islice(batches, steps):
        model(batch).total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        model.close_step()
    return (time.process_time() - begun) / steps


def looped(steps: int, hidden: int, data: Ready) -> float:
    with tempfile.TemporaryDirectory() as folder:
        options = config(batch_size=64, steps=steps, save_every=10**9, log_every=50)
        trainer = Trainer(module(hidden), data, options, Path(folder), device="cpu")
        trainer.checkpoints.save = lambda *_, **__: None
        begun = time.process_time()
        trainer.run()
        return (time.process_time() - begun) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = Ready(FakeData(256), given.steps)
    bare(10, given.hidden, data), looped(10, given.hidden, data)
    rounds = [[one(given.steps, given.hidden, data) for one in (bare, looped)] for _ in range(given.rounds)]
    quick, slow = (statistics.median(column) * 1e3 for column in zip(*rounds, strict=True))
    print("ms a step   bare   loop   loop/bare")
    print(f"          {quick:6.2f} {slow:6.2f}   {slow / quick:.3f}")


if __name__ == "__main__":
    main()
