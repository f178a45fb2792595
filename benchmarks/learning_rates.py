"""Does the rule for the learning rate strand anybody? Cells of model, task, width, depth and rate, drawn by a seed.

    python benchmarks/learning_rates.py --cells 60 --draw 1
    python benchmarks/learning_rates.py --cells 20 --draw 2 --first-seed 10 --json FILE
    python benchmarks/learning_rates.py --only 3 17 --scale 10

A cell trains through the product's own loop without a stated rate; then the rate that the rule chose is multiplied by
the cell's factor, a third to three. A picture shows one thing of 16 looks, four colours by four kinds, the first
colour and kind as often as all others nearly; a model learns if it answers 512 new examples better than the most
frequent answer to each question does, by a quarter of what is left to 1. ``--scale`` multiplies every factor: how far
the rule is from rates that strand a model.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vlcli.engine.trainer import Trainer
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.nn import Batch, DataSpec, InputSpec, Pixels, View, fake_batch
from vlcli.recipe.schema import Pretrain

COLOURS = KINDS = 4
LOOKS = COLOURS * KINDS
PLAIN_WORD, COLOUR_WORD, KIND_WORD, FIRST_LOOK, MASK = 8, 9, 10, 16, 4
WIDTHS, FACTORS, BATCH, TEST = (64, 96, 128, 192, 256, 384), (1 / 3, 0.6, 1.0, 1.7, 3.0), 16, 512
LONGEST, SHARE = 8.0, 0.25
"""Seconds that a cell may be expected to take; the share of what the most frequent answer leaves that is learning."""
ANSWERS = tuple(f"a{n}" for n in range(COLOURS + KINDS))
REGIONS = ("lxmert", "uniter", "dimbert", "vilbert", "vl-bert")
MODELS = {
    **dict.fromkeys(REGIONS, ("vqa", "classification", "captioning")),
    "butd": ("vqa", "classification"),
    "albef": ("vqa", "classification", "captioning", "retrieval"),
    "vlmo": ("vqa", "classification", "captioning", "retrieval"),
    "deit": ("image-classification",),
    "two-tower": ("retrieval",),
}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "vqa": {"name": "answering"},
    "classification": {"name": "classification", "classes": KINDS},
    "captioning": {"name": "mlm"},
    "retrieval": {"name": "contrast"},
    "image-classification": {"name": "image-classification", "classes": KINDS},
}


class Cell(NamedTuple):
    """What is trained, and by how much the rule's rate is multiplied."""

    model: str
    task: str
    width: int
    depth: int
    factor: float


def spec_of(cell: Cell) -> dict[str, Any]:
    """The model as a recipe would name it, ``depth`` layers on its longest path."""
    width, depth, below = cell.width, cell.depth, cell.depth // 2
    spec: dict[str, Any] = {"name": cell.model, "hidden": width, "heads": width // 32}
    if cell.model in ("lxmert", "albef"):
        spec |= {"text_layers": max(1, below), "image_layers": max(1, below), "cross_layers": max(1, depth - below)}
    elif cell.model == "vilbert":
        spec |= {"text_layers": depth, "cross_layers": max(1, depth // 2)}
    elif cell.model == "butd":
        spec = {"name": "butd", "hidden": width}
    elif cell.model == "two-tower":
        tower = {"hidden_size": width, "num_hidden_layers": depth, "num_attention_heads": width // 32}
        tower |= {"intermediate_size": 4 * width}
        image = {"model_type": "vit", "image_size": 32, "patch_size": 16, **tower}
        spec = {"name": "two-tower", "image": image, "text": {"model_type": "bert", **tower}, "width": width}
    else:
        spec |= {"layers": depth}
    extra = {"albef": {"image": "features", "grid": [2, 2]}, "deit": {"image_size": 32, "classes": None}}
    extra |= {"vlmo": {"image": "features", "grid": [2, 2], "fused_layers": max(1, depth // 2)}}
    extra |= {"dimbert": {"concepts": 0}}
    return spec | extra.get(cell.model, {})


class Things:
    """Pictures of one thing and a word each, made as they are asked for; every epoch has new ones."""

    def __init__(self, cell: Cell, needs: InputSpec, data_spec: DataSpec, size: int, seed: int) -> None:
        self.cell, self.needs, self.data_spec, self.size, self.seed = cell, needs, data_spec, size, seed
        draw = torch.Generator().manual_seed(seed % 1000)  # the world of a seed: held-out data are of the same
        self.features = torch.randn(LOOKS, data_spec.region_dim, generator=draw)
        self.pixels = torch.randn(LOOKS, 3, 16, 16, generator=draw)

    def __len__(self) -> int:
        return self.size

    def loader(self, batch_size: int, **options: Any) -> Iterator[Batch]:
        """Batches of new examples, the same for the same seed and epoch."""
        draw = torch.Generator().manual_seed(1_000_003 * self.seed + options.get("epoch", 0))
        for number in range(self.size // batch_size):
            batch = self.batch(batch_size, draw)
            if number >= options.get("start_batch", 0):
                yield batch

    def batch(self, rows: int, draw: torch.Generator) -> Batch:
        """Questions, labels or word pairs as the cell's task has them."""
        odds = 1 / torch.arange(1, COLOURS + 1)
        colour, kind = (torch.multinomial(odds, rows, True, generator=draw) for _ in range(2))
        look = colour * KINDS + kind
        if self.cell.task == "retrieval":
            look = torch.randperm(LOOKS, generator=draw)[:rows]
        by_kind = torch.rand(rows, generator=draw) < 0.5
        words = torch.full((rows,), PLAIN_WORD)
        if self.cell.task == "vqa":
            words = torch.where(by_kind, KIND_WORD, COLOUR_WORD)
        elif self.cell.task in ("captioning", "retrieval"):
            words = FIRST_LOOK + look
        batch = fake_batch(self.needs, self.data_spec, rows)
        self._show(batch.clean, look, draw)
        self._say(batch, words)
        names = [ANSWERS[n] for n in torch.where(by_kind, COLOURS + kind, colour).tolist()]
        batch.targets |= {"answers": [{name: 1.0} for name in names], "label": kind, "asked": by_kind, "look": look}
        return batch

    def _show(self, view: View, look: Tensor, draw: torch.Generator) -> None:
        images = view.images
        assert images is not None
        if images.regions is not None:
            features = images.regions.features
            features[:] = 0.1 * torch.randn(features.shape, generator=draw)
            features[:, 0] += self.features[look]
        if images.pixels is not None:
            frame = 0.1 * torch.randn(len(look), 3, 32, 32, generator=draw)
            frame[:, :, :16, :16] += self.pixels[look]
            images.pixels = Pixels(frame, images.pixels.sizes)

    def _say(self, batch: Batch, words: Tensor) -> None:
        text = batch.clean.text
        if text is None:
            return
        text.ids[:, 1] = words
        text.keys = [f"text-{word}" for word in words.tolist()] if self.cell.task == "retrieval" else text.keys
        if self.cell.task == "captioning":
            labels = torch.full_like(text.ids, -1)
            labels[:, 1], text.ids[:, 1] = words, MASK
            batch.clean.mask_labels["masked_words"] = labels
            batch.views["mlm"] = batch.clean


def train(cell: Cell, seed: int, steps: int) -> tuple[TrainingModule, Things, float]:
    """Train a cell by the rule; the factor multiplies what it chose."""
    data_spec = DataSpec(vocab_size=40, mask_id=MASK, cls_id=1, sep_id=2, text_length=3, regions=2, region_dim=32)
    data_spec = DataSpec(**{**vars(data_spec), "answers": ANSWERS if cell.task == "vqa" else ()})
    objective = dict(OBJECTIVES[cell.task])
    if cell.task == "captioning":
        objective["view"] = "mlm"
    module = build_training_module(spec_of(cell), [objective], data_spec, seed=seed)
    data = Things(cell, module.model.input_spec(), data_spec, steps * BATCH, seed)
    plan = Pretrain(kind="pretrain", batch_size=BATCH, steps=steps, schedule={"name": "constant"}, log_every=10**6)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(module, data, plan, Path(folder), seed=seed, device="cpu")
        trainer.checkpoints.save = lambda *_, **__: None  # type: ignore[method-assign]
        rate = trainer.config.optimizer.lr or 0.0
        scaled = trainer.config.optimizer.model_copy(update={"lr": rate * cell.factor})
        trainer.config = trainer.config.model_copy(update={"optimizer": scaled})
        for group in trainer.optimizer.param_groups:
            group["peak"] *= cell.factor
        trainer.run()
    return module, data, rate * cell.factor


@torch.no_grad()
def scores(module: TrainingModule, data: Things, seed: int) -> tuple[float, float]:
    """Accuracy on new examples, and that of the most frequent answer to each question."""
    module.eval()
    truths, guesses, asked = [], [], []
    fresh = torch.Generator().manual_seed(77_777 + seed)
    for _ in range(TEST // BATCH):
        batch = data.batch(BATCH, fresh)
        step, (head,) = module.step(batch), module.objectives.values()
        if data.cell.task == "captioning":
            logits, truth = head.scores(step)
        elif data.cell.task == "retrieval":
            vectors = [torch.nn.functional.normalize(head.embed(step, side), dim=-1) for side in ("text", "image")]
            logits, truth = vectors[0] @ vectors[1].T, torch.arange(BATCH)
        else:
            logits = head.predict(step)["logits"]
            answer = torch.tensor([ANSWERS.index(next(iter(one))) for one in batch.targets["answers"]])
            truth = answer if data.cell.task == "vqa" else batch.targets["label"]
        truths.append(truth)
        guesses.append(logits.argmax(1))
        asked.append(batch.targets["asked"] if data.cell.task == "vqa" else torch.zeros(BATCH, dtype=torch.bool))
    truth, guess, kinds = torch.cat(truths), torch.cat(guesses), torch.cat(asked)
    frequent = sum(int(truth[kinds == one].bincount().max()) for one in kinds.unique()) / len(truth)
    return float((truth == guess).float().mean()), frequent


def expected(cell: Cell) -> tuple[int, float]:
    """Steps of a cell and the seconds that they may take on one core."""
    steps = 300 if cell.width <= 128 else 200 if cell.width <= 192 else 150
    streams = {"lxmert": 2.0, "albef": 1.5, "vilbert": 2.0, "two-tower": 2.0, "vlmo": 1.5, "butd": 0.2}
    layers = cell.depth * streams.get(cell.model, 1.0)
    return steps, steps * (0.004 + 0.0025 * layers + 1.2e-8 * 12 * cell.width**2 * layers)


def drawn(count: int, seed: int) -> list[Cell]:
    """Cells in the order of the draw; those that would take too long are drawn again."""
    draw, cells = random.Random(seed), list[Cell]()
    while len(cells) < count:
        model = draw.choice(list(MODELS))
        cell = Cell(model, draw.choice(MODELS[model]), draw.choice(WIDTHS), draw.randint(1, 6), draw.choice(FACTORS))
        cells += [cell] if expected(cell)[1] <= LONGEST else []
    return cells


def main() -> None:
    """Print a line for each run, and what did not learn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, value in (("cells", 60), ("draw", 1), ("seeds", 2), ("first-seed", 0)):
        parser.add_argument(f"--{option}", type=int, default=value)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--longer", type=float, default=1.0, help="multiplies the steps")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of cells")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    given = parser.parse_args()
    torch.set_num_threads(1)
    failed, began = [], time.process_time()
    for number, unscaled in enumerate(drawn(given.cells, given.draw)):
        cell = unscaled._replace(factor=unscaled.factor * given.scale)
        for seed in (
            range(given.first_seed, given.first_seed + given.seeds) if number in (given.only or [number]) else ()
        ):
            start = time.process_time()
            module, data, rate = train(cell, seed, round(given.longer * expected(cell)[0]))
            accuracy, frequent = scores(module, data, seed)
            learnt = accuracy >= frequent + SHARE * (1 - frequent)
            row = {**cell._asdict(), "cell": number, "seed": seed, "lr": rate, "accuracy": accuracy}
            row |= {"frequent": frequent, "learnt": learnt, "seconds": round(time.process_time() - start, 1)}
            failed += [] if learnt else [number]
            print(
                f"{number:3} {cell.model:<10} {cell.task:<21} width {cell.width:<4} depth {cell.depth}"
                f"  x{cell.factor:<5.2g} lr {rate:<8.2g} seed {seed:<3} {accuracy:.3f} ({frequent:.3f})"
                f" {row['seconds']:5}s{'' if learnt else '  NOT LEARNT'}",
                flush=True,
            )
            if given.json is not None:
                with given.json.open("a") as lines:
                    lines.write(json.dumps(row) + "\n")
    print(
        f"not learnt: {len(failed)} runs of cells {sorted({*failed})}; {time.process_time() - began:.0f} s of one core"
    )


if __name__ == "__main__":
    main()
