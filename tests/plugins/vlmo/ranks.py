"""What one process of two does: ``python -m tests.plugins.vlmo.ranks FILE [as_released|sigmoid]``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from vlcli_vlmo.weights import to_released

from tests.plugins.vlmo.golden import DATA_SPEC, TINY, images, value
from vlcli.engine import processes
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.engine.weights import save_tensors
from vlcli.nn import Batch, Text, View
from vlcli.objectives.mlm import MARK

IDS = [[2, 5, 9, 14, 3, 0], [2, 30, 31, 7, 12, 3], [2, 8, 3, 0, 0, 0], [2, 21, 22, 3, 0, 0]]


def module(as_released: bool, contrast: str = "contrast") -> TrainingModule:
    objectives: list[dict[str, Any]] = [
        {"name": "mlm", "weight": 0.25},
        {"name": contrast} | ({"as_released": True} if as_released else {}),
        {"name": "contrast-matching"},
    ]
    made = build_training_module(
        {"name": "vlmo", **TINY, "packed": True}, objectives[1:2] if as_released else objectives, DATA_SPEC
    )
    made.double()
    named = {k: value(k, tuple(v.shape)) for k, v in to_released(made.state_dict()).items() if v.is_floating_point()}
    adapted = made.model.adapt(named, [])
    loaded = {n if n.startswith("objectives.") else f"model.{n}": v for n, v in adapted.items()}
    made.load_state_dict(loaded, strict=contrast == "contrast")  # other heads are drawn from the seed
    return made.train()


def text(ids: torch.Tensor, keys: list[str]) -> Text:
    mask = ids != 0
    special = (ids == 2) | (ids == 3)
    return Text(ids, mask, special, ids * 0, keys=keys, raw=keys)


def batch(rows: list[int]) -> Batch:
    """The given of four examples, cut to their own longest sentence."""
    chosen = torch.tensor(rows)
    ids = torch.tensor(IDS)[chosen]
    ids = ids[:, : int((ids != 0).sum(1).max())]
    keys = [f"t{row}" for row in rows]
    pictures = images("input.image_w2", 4)
    pictures.pixels = pictures.pixels.select(chosen)
    pictures.keys = [f"i{row}" for row in rows]
    order = torch.arange(len(rows))
    labels = torch.full_like(ids, -1)
    for place, row in enumerate(rows):  # unequal numbers of hidden words
        labels[place, 1 : 2 + row % 2] = ids[place, 1 : 2 + row % 2]
    hidden = ids.masked_fill(labels >= 0, 4)
    views = {
        "clean": View(text(ids, keys), pictures, order, order[:, None], aligned=True),
        "corrupted": View(
            text(hidden, keys), pictures, order, order[:, None], aligned=True, mask_labels={MARK: labels}
        ),
    }
    return Batch(views, {}, keys, chosen * 7 + 1)


def gradients(rows: list[int], as_released: bool, contrast: str = "contrast") -> dict[str, torch.Tensor]:
    """Losses by name, and the gradient of every parameter, averaged over processes."""
    made = module(as_released, contrast)
    result = made(batch(rows))
    result.total.backward()
    found = {f"loss/{name}": (mean.total / mean.count).reshape(1) for name, mean in result.losses.items()}
    for name, parameter in made.named_parameters():
        grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        found[f"grad/{name}"] = processes.summed(grad) / processes.world()
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    processes.start("cpu")
    mine = [2 * processes.rank(), 2 * processes.rank() + 1]
    found = gradients(mine, "as_released" in sys.argv, "sigmoid-contrast" if "sigmoid" in sys.argv else "contrast")
    if processes.rank() == 0:
        save_tensors(Path(sys.argv[1]), found)
    processes.wait()
