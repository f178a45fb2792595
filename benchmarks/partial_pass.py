"""A fine-tuning step of LXMERT whose last layer computes only what the head reads, beside one that computes all tokens.

    python benchmarks/partial_pass.py

Sixty-four statements of up to 17 word pieces about two pictures of up to 5 regions each, as in the quickstart. Both
steps have the same weights and batch and must agree in loss and gradients; they are taken in turn. Prints the
processor time of a step and the ratio.
"""

from __future__ import annotations

import argparse
import time

import torch
import vlcli_lxmert
from in_turn import report

from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.nn import Batch, DataSpec, Images, Regions, Text, View

WIDTH = 128


def batch_of(spec: DataSpec, rows: int, words: int, regions: int) -> Batch:
    """Rows of a text and two pictures each."""
    lengths, counts = torch.randint(words // 2, words + 1, (rows, 1)), torch.randint(2, regions + 1, (2 * rows, 1))
    mask, seen = torch.arange(words)[None] < lengths, torch.arange(regions)[None] < counts
    special = (torch.arange(words)[None] == 0) | (torch.arange(words)[None] == lengths - 1)
    text = Text(
        torch.randint(5, spec.vocab_size, mask.shape), mask, special, (torch.arange(words) - 1).expand(mask.shape)
    )
    corners = torch.rand(2 * rows, regions, 2, 2).sort(2).values.flatten(2)
    features = torch.randn(2 * rows, regions, WIDTH)
    images = Images(
        keys=[str(row) for row in range(2 * rows)],
        regions=Regions(features, corners, seen, torch.full((2 * rows, 2), 64)),
    )
    order = torch.arange(rows)
    view = View(text, images, order, torch.arange(2 * rows).unflatten(0, (rows, 2)))
    return Batch({"clean": view}, {"label": [row % 2 for row in range(rows)]}, list(map(str, order.tolist())), order)


def step(module: TrainingModule, batch: Batch) -> tuple[float, list[torch.Tensor], float]:
    """The loss, the gradients and the processor seconds."""
    module.zero_grad()
    begun = time.process_time()
    total = module(batch).total
    total.backward()
    took = time.process_time() - begun
    return total.item(), [parameter.grad for parameter in module.parameters() if parameter.grad is not None], took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    spec = DataSpec(vocab_size=300, mask_id=4, cls_id=2, sep_id=3, region_dim=WIDTH, text_length=24)
    layers = {"text_layers": 2, "image_layers": 1, "cross_layers": 2}
    model = {"name": "lxmert", "hidden": 96, "heads": 4, "dropout": 0.0, **layers}
    module = build_training_module(model, [{"name": "classification", "classes": 2, "images": 2}], spec)
    passes = {"what is read": vlcli_lxmert.LXMERT.partial_passes, "all tokens": frozenset()}
    times: dict[str, list[float]] = {name: [] for name in passes}
    for number in range(args.rounds + 1):
        batch, made = batch_of(spec, args.rows, 17, 5), {}
        for name, partial in passes.items():
            module.model.partial_passes = partial  # type: ignore[misc]
            made[name] = step(module, batch)
            times[name] += [made[name][2]] if number else []
        (loss, gradients, _), (whole, expected, _) = made.values()
        torch.testing.assert_close(loss, whole, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradients, expected, rtol=1e-3, atol=1e-5)
    report(times)


if __name__ == "__main__":
    main()
