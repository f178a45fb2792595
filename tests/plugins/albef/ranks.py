"""What one process trains: ``python -m tests.plugins.albef.ranks FILE``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from tests.plugins.albef.reference import DATA_SPEC, MODEL, view
from vlcli.engine import processes
from vlcli.engine.training_module import build_training_module
from vlcli.engine.weights import save_tensors
from vlcli.nn import Batch

STEPS, SIZE, QUEUE = 4, 7, 12
OBJECTIVES = [
    {"name": "momentum-contrast", "width": 12, "queue": QUEUE, "same": "image"},
    {"name": "anchor-alignment", "width": 12, "queue": QUEUE},
]


def batch(number: int, rank: int, world: int) -> Batch:
    """A process's share of one batch of seven different pairs: every ``world``-th from place ``rank`` on."""
    noise = torch.Generator().manual_seed(number)
    pixels = torch.rand(SIZE, 3, 48, 48, generator=noise, dtype=torch.float64)[rank::world]
    words = torch.randint(4, 30, (SIZE, 5), generator=noise)
    ids = torch.cat([torch.full((SIZE, 1), 2), words], 1)[rank::world]
    places = torch.arange(SIZE)[rank::world].tolist()
    clean = view(ids, pixels, [f"{number} {place}" for place in places])
    clean.text.keys = clean.text.raw = [f"text {number} {place}" for place in places]  # type: ignore[union-attr]
    return Batch({"clean": clean}, {}, clean.text.keys, torch.tensor(places))  # type: ignore[union-attr]


def trained(rank: int, world: int) -> dict[str, torch.Tensor]:
    """Weights and queues after a few steps on batches that do not divide the queue."""
    torch.manual_seed(0)
    module = build_training_module(MODEL, OBJECTIVES, DATA_SPEC, seed=3).double().train()
    optimiser = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], 0.05)
    for number in range(STEPS):
        optimiser.zero_grad()
        module(batch(number, rank, world), index=number).total.backward()
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.grad = processes.summed(parameter.grad) / world
        optimiser.step()
        module.close_step()
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    processes.start("cpu")
    found = trained(processes.rank(), processes.world())
    if processes.rank() == 0:
        save_tensors(Path(sys.argv[1]), found)
    processes.wait()
