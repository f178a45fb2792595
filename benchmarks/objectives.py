"""What do masking by role and foils save? Pairs of objectives on captions of scenes of symbols.

    python benchmarks/objectives.py --compare masking --seeds 3 --steps 500
    python benchmarks/objectives.py --compare matching --variants foils --first-seed 100 --seeds 1 --steps 300

``masking`` trains masked language modelling with random words, words of place or whole phrases hidden, and asks for the
word of place of held-out captions when this word alone is hidden (chance 1/2: the words around it tell the axis).
``matching`` trains image-text matching with captions of other pictures or rewritten ones as negatives, and asks which
of two captions of a held-out scene, the true one and one with a single false detail, has the higher score (chance 1/2).
Every variant starts from the same weights: ``--start`` steps of masked words of place come before and do not
count. All goes through vlcli's own pipeline and training loop, as in ``learning.py``.

A row for each variant and kind of question: examples until .9 of what can be known is reached (``-`` where it never
is), the result on held-out scenes at the end, both by seed, and what is saved: the examples of the first variant over
those of this one. A run ends early once .98 is reached over all kinds. Settings are chosen on other seeds than those
reported. ``--json FILE`` keeps every run's curve: examples, result on held-out scenes, loss, norm of the gradient.
"""

from __future__ import annotations

import argparse
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from captions import COMPARED, FOILS, PROBE, START, captions, statements
from learning import MODELS, SIZES, WINDOW, Curve, Learnt, keep, options, train
from symbols import Question, Symbols, write
from torch import Tensor

from vlcli import registry
from vlcli.builders.training import corruptions_of
from vlcli.data.pipeline import Pipeline
from vlcli.data.sample import Corruption
from vlcli.data.vocabulary import Tokenizer
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.features import FeatureStore
from vlcli.nn.model import DataSpec

State = dict[str, Tensor]
"""Weights by name."""
WATCHED, HELD_OUT = {"masking": 400, "matching": 100}, {"masking": 2000, "matching": 500}
"""Scenes that are asked about at every window, and at the end."""
ENOUGH, ALL = 0.95, 0.99
"""Results that mean .9 and .98 of what can be known, chance being 1/2."""
AXES = {"left-right": False, "above-below": True}
"""Whether the relations of an axis are those of the upright one."""


class Measure(Protocol):
    """Asks a module about held-out scenes."""

    def __call__(self) -> dict[str, float]:
        """Shares of right answers, by kind."""
        ...


@dataclass
class Watched(Curve):
    """A curve of results on held-out scenes, asked for at every window.

    Attributes:
        module: what is trained.
        measure: asks it.
        kinds: results by kind, window by window.
    """

    module: TrainingModule | None = None
    measure: Measure | None = None
    kinds: list[dict[str, float]] = field(default_factory=list)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Ask, and end the run where all is known."""
        assert self.module is not None
        assert self.measure is not None
        self.kinds.append(self.measure())
        self.module.train()
        result = mean(self.kinds[-1])
        self.rows.append((step * self.batch, result, values["loss"], values["grad_norm"]))
        self.rates.append(values["examples_per_second"])
        if result >= self.goal:
            raise Learnt

    def until_of(self, kind: str, share: float) -> int | None:
        """Examples until a window's result in one kind reached it."""
        found = zip(self.rows, self.kinds, strict=True)
        return next((examples for (examples, *_), kinds in found if kinds[kind] >= share), None)


def mean(found: Mapping[str, float]) -> float:
    """The mean over kinds."""
    return sum(found.values()) / len(found)


def run(
    model: dict[str, Any], compared: str, objectives: list[dict[str, Any]], known: State, seed: int, given: Namespace
) -> tuple[Watched, dict[str, float]]:
    """One run: its curve, and its results on more held-out scenes."""
    asked = {"t": list(captions(min(given.scenes, given.steps * given.batch), seed))}
    ask = asked_captions if compared == "masking" else statements
    asked |= {"w": ask(WATCHED[compared], 20_000 + seed), "h": ask(HELD_OUT[compared], 10_000 + seed)}
    with tempfile.TemporaryDirectory() as folder:
        module, data_spec, load = build(model, objectives, asked, Path(folder), seed)
        module.model.load_state_dict(known or module.model.state_dict())
        hidden = [registry.build("objectives", PROBE, module.model, data_spec).corruption()]
        test = partial(guessed, module) if compared == "masking" else partial(told_apart, module)
        watch, final = (load(key, hidden if compared == "masking" else []) for key in ("w", "h"))
        curve = Watched(ALL, given.batch, module=module, measure=partial(test, watch))
        train(module, load("t", corruptions(module, data_spec)), options(given, given.steps), curve, seed)
        return curve, test(final)


def started(model: dict[str, Any], compared: str, seed: int, given: Namespace) -> State:
    """The weights that every variant starts from; none where each starts anew."""
    if compared not in START or not given.start:
        return {}
    asked = {"t": list(captions(given.start * given.batch, 30_000 + seed))}
    with tempfile.TemporaryDirectory() as folder:
        module, data_spec, load = build(model, START[compared], asked, Path(folder), seed)
        curve = Watched(2.0, given.batch, module=module, measure=lambda: {"none": 0.0})
        train(module, load("t", corruptions(module, data_spec)), options(given, given.start), curve, seed)
        return module.model.state_dict()


def asked_captions(number: int, seed: int) -> list[Question]:
    """True captions as a list."""
    return list(captions(number, seed))


def corruptions(module: TrainingModule, data_spec: DataSpec) -> list[Corruption]:
    """What the objectives do to examples."""
    return [one for name in module.objectives for one in corruptions_of(module, name, data_spec)]


def build(
    model: dict[str, Any], objectives: list[dict[str, Any]], asked: dict[str, list[Question]], folder: Path, seed: int
) -> tuple[TrainingModule, DataSpec, Any]:
    """The training module, its sizes, and what makes pipelines over captions; the vocabulary is always the same."""
    write(folder / "scenes.h5", asked, model.get("image") == "features", seed)
    store, tokenizer = FeatureStore(folder / "scenes.h5"), Tokenizer.train([one.text for one in captions(2000, 0)], 200)
    data_spec = DataSpec(
        text_length=16, regions=store.max_regions, region_dim=store.dim, **tokenizer.data_spec_fields()
    )
    module = build_training_module(model, objectives, data_spec, seed=seed)

    def load(prefix: str, corruptions: list[Corruption]) -> Pipeline:
        sources: dict[str, Any] = {"tokenizer": tokenizer, "data_spec": data_spec, "store": store, "seed": seed}
        needs = module.model.input_spec()
        return Pipeline([Symbols(asked[prefix], prefix)], needs=needs, corruptions=corruptions, **sources)

    return module, data_spec, load


@torch.no_grad()
def guessed(module: TrainingModule, data: Pipeline) -> dict[str, float]:
    """Share of hidden words that are guessed right, by the axis of the relation."""
    module.eval()
    right: list[bool] = []
    for batch in data.loader(200):
        logits, truth = module.objectives["mlm"].scores(module.step(batch))  # type: ignore[operator]
        right += (logits.argmax(1) == truth).tolist()
    upright = [example.targets["label"] >= 2 for example in data.examples]
    by_axis = {kind: [one for one, up in zip(right, upright, strict=True) if up == flag] for kind, flag in AXES.items()}
    return {kind: sum(found) / max(len(found), 1) for kind, found in by_axis.items()}


@torch.no_grad()
def told_apart(module: TrainingModule, data: Pipeline) -> dict[str, float]:
    """Share of scenes whose true caption scores above the foil, by kind of foil."""
    module.eval()
    scores = [module.predict(module.step(batch))["matching"]["score"] for batch in data.loader(200)]
    by_scene = torch.cat(scores).view(-1, 1 + len(FOILS))  # (scenes, caption and foils)
    above = (by_scene[:, :1] > by_scene[:, 1:]).double().mean(0)
    return dict(zip(FOILS, above.tolist(), strict=True))


def saved(first: list[int | None], own: list[int | None], most: int) -> str:
    """Examples of the first variant over those of another; a bound where runs ended before either was there."""
    if None in own:
        return "-" if None in first else f"<{sum(first) / sum(n or most for n in own):.1f}"  # type: ignore[arg-type]
    bound = ">" if None in first else ""
    return f"{bound}{sum(n or most for n in first) / sum(n for n in own if n):.1f}"


def results(runs: list[tuple[Watched, dict[str, float]]]) -> dict[str, tuple[list[int | None], list[float]]]:
    """Of all kinds together and of each: examples until .9 of what can be known, and the result at the end, by run."""
    found = {"all": ([curve.until(ENOUGH) for curve, _ in runs], [mean(score) for _, score in runs])}
    for kind in runs[0][1]:
        found[kind] = ([curve.until_of(kind, ENOUGH) for curve, _ in runs], [score[kind] for _, score in runs])
    return found


def row(variant: str, kind: str, reached: list[int | None], scores: list[float], ratio: str) -> str:
    """A line of the table."""
    known = " ".join(f"{'-' if n is None else n:>7}" for n in reached)
    return f"{variant:<8} {kind:<16} {known}   {' '.join(f'{score:.3f}' for score in scores)}   {ratio:>5}"


def compare(compared: str, model: dict[str, Any], given: Namespace) -> None:
    """The rows of one comparison."""
    first: dict[str, list[int | None]] = {}
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    starts = {seed: started(model, compared, seed, given) for seed in seeds}
    for variant, objectives in COMPARED[compared].items():
        if given.variants and variant not in given.variants:
            continue
        runs = []
        for seed in seeds:
            runs.append(run(model, compared, objectives, starts[seed], seed, given))
            told = {"model": model, "compared": compared, "variant": variant, "seed": seed, "lr": given.lr}
            curve, score = runs[-1]
            keep(given.json, {**told, "by_kind": score, "kinds": curve.kinds}, curve, mean(score))
        for kind, (reached, scores) in results(runs).items():
            ratio = saved(first.setdefault(kind, reached), reached, given.steps * given.batch)
            print(row(variant, kind, reached, scores, ratio), flush=True)


def arguments() -> Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", nargs="+", default=list(COMPARED), choices=list(COMPARED))
    parser.add_argument("--variants", nargs="+", default=[], help="some; the others are measured by the first of them")
    parser.add_argument("--model", default="lxmert", choices=list(MODELS))
    numbers = {"seeds": 3, "first-seed": 0, "steps": 500, "start": 250, "batch": 64, "scenes": 50_000}
    for option, value in numbers.items():
        parser.add_argument(f"--{option}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    return parser.parse_args()


def main() -> None:
    """Print the tables."""
    given = arguments()
    torch.set_num_threads(1)
    model = {**MODELS[given.model], **SIZES}
    registry.check("models", model)
    sizes = f"width {SIZES['hidden']}, batch {given.batch}, lr {given.lr:g}, at most {given.steps} steps"
    print(f"{given.model}, {sizes}, asked every {WINDOW}")
    for compared in given.compare:
        until = "examples until .9"
        print(f"{compared:<25} {until:<{max(8 * given.seeds + 2, 20)}}held out{'':<{6 * given.seeds - 4}}saved")
        compare(compared, model, given)


if __name__ == "__main__":
    main()
