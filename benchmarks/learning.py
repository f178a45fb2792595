"""Does it learn? Models on questions about scenes of symbols, through vlcli's own pipeline and training loop.

    python benchmarks/learning.py --models lxmert plain-pre --tasks relation-2 count --seeds 3 --steps 3000
    python benchmarks/learning.py --models lxmert --set init_std=0.02 --lr 0.001 --first-seed 100
    python benchmarks/learning.py --models lxmert --tasks relation-4 --first attribute:250

A row for each model and task: examples until .9 of what can be known is reached (of the way from chance to 1, in a
window of 50 steps; ``-`` where it never is), accuracy on 2,000 held-out scenes at the end, both over seeds, examples a
second on one thread and the share of them spent waiting for data. A run ends early once .98 is reached. Settings are
chosen on other seeds (``--first-seed 100``) than those reported. ``--json FILE`` keeps every run's curve.

``--first TASK:STEPS`` trains on an easier task before: the model keeps its weights, the head and the optimizer are new,
and the examples of both count. Of several such stages each starts from the one before.
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
from symbols import TASKS, Question, Symbols, Task, questions, write

from vlcli import registry
from vlcli.data.pipeline import Pipeline
from vlcli.data.vocabulary import Tokenizer
from vlcli.engine.trackers import Tracker
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
class Curve(Tracker):
    """A tracker that keeps accuracies and ends a run that has learnt.

    Attributes:
        goal: accuracy at which the run ends.
        batch: examples of a step.
        before: examples that earlier stages have seen.
        rows: (examples, accuracy, loss, gradient norm) by window.
        rates: examples a second by window.
        waits: share of time spent waiting for data by window.
    """

    goal: float
    batch: int
    before: int = 0
    rows: list[tuple[int, float, float, float]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """A window's means."""
        accuracy = values["classification/accuracy"]
        self.rows.append((self.before + step * self.batch, accuracy, values["loss"], values["grad_norm"]))
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
    spec: dict[str, Any], task: Task, asked: dict[str, list[Question]], store: FeatureStore, seed: int
) -> tuple[TrainingModule, Any]:
    """The training module, and what makes pipelines; the vocabulary is that of all training questions."""
    texts = {one.text for prefix, listed in asked.items() if prefix != "h" for one in listed}
    tokenizer = Tokenizer.train(sorted(texts), 200)
    data_spec = DataSpec(
        text_length=16, regions=store.max_regions, region_dim=store.dim, **tokenizer.data_spec_fields()
    )
    objective = {"name": "classification", "classes": task.answers, "images": task.scenes}
    module = build_training_module(spec, [objective], data_spec, seed=seed)

    def pipeline(listed: list[Question], prefix: str) -> Pipeline:
        needs = module.model.input_spec()
        return Pipeline(
            [Symbols(listed, prefix)], needs=needs, tokenizer=tokenizer, data_spec=data_spec, store=store, seed=seed
        )

    return module, pipeline


def run(spec: dict[str, Any], name: str, seed: int, given: argparse.Namespace) -> tuple[Curve, float]:
    """One run: the curve of its last stage, and its accuracy on scenes it has not seen."""
    stages = {"t": (name, given.steps), **{f"f{n}-": stage for n, stage in enumerate(given.first)}}
    asked = {"t": made(stages["t"], seed, given), "h": list(questions(name, HELD_OUT, 10_000 + seed))}
    asked |= {prefix: made(stage, seed, given) for prefix, stage in stages.items() if prefix != "t"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenes.h5"
        write(path, asked, spec.get("image") == "features", seed)
        store, known, before = FeatureStore(path), None, 0
        for prefix in [*list(stages)[1:], "t"]:
            task, steps = stages[prefix]
            module, pipeline = build(spec, TASKS[task], asked, store, seed)
            if known is not None:
                module.model.load_state_dict(known)
            curve = Curve(known_share(TASKS[task], 0.98), given.batch, before)
            train(module, pipeline(asked[prefix], prefix), options(given, steps), curve, seed)
            known, before = module.model.state_dict(), curve.rows[-1][0]
        return curve, held_out(module, pipeline(asked["h"], "h"))


def made(stage: tuple[str, int], seed: int, given: argparse.Namespace) -> list[Question]:
    """The questions of a stage: one for each example, as long as they are not too many."""
    task, steps = stage
    return list(questions(task, min(given.scenes, steps * given.batch), seed))


def known_share(task: Task, share: float) -> float:
    """The accuracy of who knows this share of what can be known."""
    return 1 / task.answers + share * (1 - 1 / task.answers)


def train(module: TrainingModule, data: Pipeline, plan: Pretrain, curve: Curve, seed: int) -> None:
    """Train to the end of the plan, or until the curve says that all is learnt."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(module, data, plan, Path(folder), seed=seed, device="cpu")
        trainer.trackers, trainer.checkpoints.save = [curve], lambda *_, **__: None  # type: ignore[assignment, list-item]
        with suppress(Learnt):
            trainer.run()


def options(given: argparse.Namespace, steps: int) -> Pretrain:
    """One rate for all after a warm-up of 200 steps."""
    return Pretrain(
        kind="pretrain",
        batch_size=given.batch,
        steps=steps,
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
    reached = [curve.until(known_share(TASKS[task], 0.9)) for curve, _ in runs]
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


def named_stage(text: str) -> tuple[str, int]:
    """``attribute:250`` as a task and its steps."""
    task, _, steps = text.partition(":")
    if task not in TASKS or not steps.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not TASK:STEPS with a task of {', '.join(TASKS)}")
    return task, int(steps)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    for option, value in (("seeds", 3), ("first-seed", 0), ("steps", 3000), ("batch", 64), ("scenes", 50_000)):
        parser.add_argument(f"--{option}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further parameters of the models")
    parser.add_argument(
        "--first", nargs="*", type=named_stage, default=[], metavar="TASK:STEPS", help="easier tasks before"
    )
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    return parser.parse_args()


def main() -> None:
    """Print the table."""
    given = arguments()
    torch.set_num_threads(1)
    changes = {key: yaml.safe_load(value) for key, _, value in (item.partition("=") for item in given.set)}
    sizes = f"width {SIZES['hidden']}, batch {given.batch}, lr {given.lr:g}, at most {given.steps} steps"
    first = "".join(f", after {task} for {steps} steps" for task, steps in given.first)
    print(f"{sizes}{first}; {changes or 'defaults'}")
    print(f"{'model':<15} {'task':<11} {'examples until .9':<{8 * given.seeds + 1}}  held out   examples/s  waits")
    for model in given.models:
        spec = {**MODELS[model], **SIZES, **changes}
        registry.check("models", spec)
        for task in given.tasks:
            runs = []
            for seed in range(given.first_seed, given.first_seed + given.seeds):
                runs.append(run(spec, task, seed, given))
                told = {"model": spec, "task": task, "first": given.first, "seed": seed, "lr": given.lr}
                keep(given.json, told, *runs[-1])
            print(row(model, task, runs), flush=True)


if __name__ == "__main__":
    main()
