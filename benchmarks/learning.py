"""Does it learn? Models on questions about scenes of symbols, through vlcli's own pipeline and training loop.

    python benchmarks/learning.py --models lxmert plain-pre --tasks relation-2 count --seeds 3 --steps 3000
    python benchmarks/learning.py --models lxmert --set init_std=0.02 --lr 0.001 --first-seed 100

A row for each model and task: examples until .9 of what can be known is reached (of the way from chance to 1, in a
window of 50 steps; ``-`` where it never is), accuracy on 2,000 held-out scenes at the end, both over seeds, examples a
second on one thread and the share of them spent waiting for data. A run ends early once .98 is reached. Settings are
chosen on other seeds (``--first-seed 100``) than those reported. ``--json FILE`` keeps every run's curve.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
import plain  # noqa: F401  registers the encoder that stands beside
from symbols import TASKS, Symbols, Task, questions, write

from vlcli import registry
from vlcli.data.pipeline import Pipeline
from vlcli.data.vocabulary import Tokenizer
from vlcli.engine.trainer import Trainer
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.features import FeatureStore
from vlcli.nn.model import DataSpec
from vlcli.recipe.schema import Pretrain

HELD_OUT, WINDOW = 2000, 50
SIZES: dict[str, Any] = {"hidden": 64, "heads": 4}
STILL = {"dropout": 0.0}
GRID: dict[str, Any] = {"image": "features", "grid": [4, 4], "drop_path": 0.0}
MODELS: dict[str, dict[str, Any]] = {
    "plain-pre": {"name": "bench-plain", "layers": 3},
    "plain-post": {"name": "bench-plain", "layers": 3, "norm": "post"},
    "plain-pre-grid": {"name": "bench-plain", "layers": 3, "image": "features"},
    "plain-post-grid": {"name": "bench-plain", "layers": 3, "image": "features", "norm": "post"},
    "lxmert": {"name": "lxmert", "text_layers": 1, "image_layers": 1, "cross_layers": 2, **STILL},
    "vilbert": {"name": "vilbert", "text_layers": 3, "cross_layers": 2, **STILL},
    "uniter": {"name": "uniter", "layers": 3, **STILL},
    "vl-bert": {"name": "vl-bert", "layers": 3, **STILL},
    "dimbert": {"name": "dimbert", "layers": 3, "concepts": 0, **STILL},
    "vlmo": {"name": "vlmo", "layers": 3, "fused_layers": 2, "position_type": "absolute", **GRID},
    "albef": {"name": "albef", "image_layers": 1, "text_layers": 1, "cross_layers": 2, **STILL, **GRID},
}
"""Three layers deep on the way of a word, each as its plugin makes it but without dropout.

Models of regions stand beside ``plain-pre`` and ``plain-post``; VLMo and ALBEF, which read all cells of the board,
beside ``plain-pre-grid`` and ``plain-post-grid``, which read the same.
"""


@dataclass
class Curve:
    """A tracker that keeps accuracies and ends a run that has learnt.

    Attributes:
        goal: accuracy at which the run ends.
        rows: (examples, accuracy, loss, gradient norm) by window.
        rates: examples a second by window.
        waits: share of time spent waiting for data by window.
    """

    goal: float
    batch: int
    rows: list[tuple[int, float, float, float]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def resume(self, step: int) -> None:
        """Nothing is resumed."""

    def close(self) -> None:
        """Nothing is open."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """A window's means."""
        accuracy = values["classification/accuracy"]
        self.rows.append((step * self.batch, accuracy, values["loss"], values["grad_norm"]))
        self.rates.append(values["examples_per_second"])
        self.waits.append(values["data_wait"])
        if accuracy >= self.goal:
            raise Learnt

    def until(self, accuracy: float) -> int | None:
        """Examples until a window reached it."""
        return next((examples for examples, found, *_ in self.rows if found >= accuracy), None)


class Learnt(Exception):  # noqa: N818  no error: what a run ends by
    """What there was to know is known."""


def build(
    spec: dict[str, Any], task: Task, asked: list[Any], store: FeatureStore, seed: int
) -> tuple[TrainingModule, Any]:
    """The training module, and what makes pipelines over questions."""
    tokenizer = Tokenizer.train(sorted({one.text for one in asked}), 200)
    data_spec = DataSpec(
        text_length=16, regions=store.max_regions, region_dim=store.dim, **tokenizer.data_spec_fields()
    )
    objective = {"name": "classification", "classes": task.answers, "images": task.scenes}
    module = build_training_module(spec, [objective], data_spec, seed=seed)

    def pipeline(listed: list[Any], prefix: str) -> Pipeline:
        needs = module.model.input_spec()
        return Pipeline(
            [Symbols(listed, prefix)], needs=needs, tokenizer=tokenizer, data_spec=data_spec, store=store, seed=seed
        )

    return module, pipeline


def run(spec: dict[str, Any], name: str, seed: int, given: argparse.Namespace) -> tuple[Curve, float]:
    """One run: its curve, and its accuracy on scenes it has not seen."""
    task = TASKS[name]
    asked = {
        "t": list(questions(name, min(given.scenes, given.steps * given.batch), seed)),
        "h": list(questions(name, HELD_OUT, 10_000 + seed)),
    }
    chance = 1 / task.answers
    curve = Curve(chance + 0.98 * (1 - chance), given.batch)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenes.h5"
        write(path, asked, spec.get("image") == "features", seed)
        module, pipeline = build(spec, task, asked["t"], FeatureStore(path), seed)
        trainer = Trainer(module, pipeline(asked["t"], "t"), options(given), Path(folder), seed=seed, device="cpu")
        trainer.trackers, trainer._save_if = [curve], lambda *_, **__: None  # type: ignore[assignment, list-item]
        with suppress(Learnt):
            trainer.run()
        return curve, held_out(module, pipeline(asked["h"], "h"))


def options(given: argparse.Namespace) -> Pretrain:
    """One rate for all after a warm-up of 200 steps."""
    return Pretrain(
        kind="pretrain",
        batch_size=given.batch,
        steps=given.steps,
        epochs=10**6,
        optimizer={"lr": given.lr, "betas": [0.9, 0.98]},
        schedule={"name": "constant", "warmup": 200},
        log_every=WINDOW,
        trackers=[],
    )


@torch.no_grad()
def held_out(module: TrainingModule, data: Pipeline) -> float:
    """Share of answers that are right."""
    module.eval()
    right = 0
    for batch in data.loader(200):
        logits = module.predict(module.step(batch))["classification"]["logits"]
        right += int((logits.argmax(1) == torch.as_tensor(batch.targets["label"])).sum())
    return right / len(data)


def row(model: str, task: str, runs: list[tuple[Curve, float]]) -> str:
    """A line of the table."""
    chance = 1 / TASKS[task].answers
    reached = [curve.until(chance + 0.9 * (1 - chance)) for curve, _ in runs]
    known = " ".join(f"{'-' if n is None else n:>7}" for n in reached)
    scores = " ".join(f"{score:.3f}" for _, score in runs)
    rate = statistics.median(rate for curve, _ in runs for rate in curve.rates)
    wait = statistics.mean(wait for curve, _ in runs for wait in curve.waits)
    return f"{model:<15} {task:<11} {known}   {scores}   {rate:7.0f} {wait:6.3f}"


def keep(file: Path | None, facts: dict[str, Any], curve: Curve, score: float) -> None:
    """A line of JSON: settings, curve and score of one run."""
    if file is not None:
        with file.open("a") as lines:
            lines.write(json.dumps({**facts, "held_out": score, "curve": curve.rows}) + "\n")


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    for option, value in (("seeds", 3), ("first-seed", 0), ("steps", 3000), ("batch", 64), ("scenes", 50_000)):
        parser.add_argument(f"--{option}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further parameters of the models")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    return parser.parse_args()


def main() -> None:
    """Print the table."""
    given = arguments()
    torch.set_num_threads(1)
    changes = {key: yaml.safe_load(value) for key, _, value in (item.partition("=") for item in given.set)}
    sizes = f"width {SIZES['hidden']}, batch {given.batch}, lr {given.lr:g}, at most {given.steps} steps"
    print(f"{sizes}; {changes or 'defaults'}")
    print(f"{'model':<15} {'task':<11} {'examples until .9':<{8 * given.seeds + 1}}  held out   examples/s  waits")
    for model in given.models:
        spec = {**MODELS[model], **SIZES, **changes}
        registry.check("models", spec)
        for task in given.tasks:
            runs = []
            for seed in range(given.first_seed, given.first_seed + given.seeds):
                runs.append(run(spec, task, seed, given))
                keep(given.json, {"model": spec, "task": task, "seed": seed, "lr": given.lr}, *runs[-1])
            print(row(model, task, runs), flush=True)


if __name__ == "__main__":
    main()
