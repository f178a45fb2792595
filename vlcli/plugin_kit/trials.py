"""Training steps of components on invented data: which stage tries a component, with which small model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from vlcli import registry
from vlcli.builders.context import StageContext
from vlcli.errors import Problem, VlcliError
from vlcli.plugin_kit.conformance import DoesNotApply, Failure
from vlcli.progress import Silent
from vlcli.recipe import plan as planning
from vlcli.recipe.dump import to_yaml
from vlcli.recipe.load import load as load_recipe
from vlcli.registry import Entry
from vlcli.runner.execute import context_of
from vlcli.runner.smoke_test import smoke_test

SMALL: dict[str, Any] = {
    **dict.fromkeys(("text_layers", "image_layers", "cross_layers", "fused_layers", "encoder_layers"), 1),
    **{"hidden": 16, "heads": 2, "layers": 1, "intermediate": 32, "width": 16, "queries": 4, "classes": None},
    **{"image_size": 32, "patch": 16, "arch": "tiny-conv", "backbone": "tiny-conv", "size": 32},
}
"""Small values of the options that models share (docs/glossary.md); a model takes those that it has."""
_LAYERS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
_VIT, _BERT = {"model_type": "vit", "image_size": 32, **_LAYERS}, {"model_type": "bert", **_LAYERS}
OWN: dict[str, dict[str, Any]] = {
    "swin": {"hidden": 8, "heads": [1, 2], "layers": [1, 1], "patch": 4, "window": 4},
    "detr": {"decoder_layers": 1, "image_size": [64, 64]},
    "vlmo": {"layers": 2},
    "two-tower": {"image": _VIT, "text": _BERT},
    "two-tower-fused": {"image": _VIT, "text": _BERT},
}


def small(name: str, distribution: str = "") -> dict[str, Any]:
    """A model's entry with small sizes, as far as it takes them."""
    full = f"{distribution}:{name}" if distribution else name
    wanted = SMALL | OWN.get(name, {})
    options = registry.parameters(registry.load("models", full))
    spec = {"name": full, **{key: value for key, value in wanted.items() if key in options}}
    wrong = {problem.key.rpartition(".")[2] for problem in registry.check("models", spec)}
    return {key: value for key, value in spec.items() if key not in wrong}


class Trial(NamedTuple):
    """A stage that tries a component.

    Attributes:
        model: the small model's entry.
        stage: the stage's section of a recipe.
    """

    model: dict[str, Any]
    stage: dict[str, Any]

    @contextmanager
    def context(self) -> Iterator[StageContext]:
        """The stage as a run would hand it out, of a recipe in a temporary folder."""
        with tempfile.TemporaryDirectory() as folder:
            text = {"vocabulary": {"train": {"name": "plain-text", "split": "train"}, "size": 50}, "length": 12}
            stages = {"check": {"kind": "pretrain", "steps": 1} | self.stage}
            recipe = {"schema": 1, "root": folder, "model": self.model, "text": text, "stages": stages}
            file = Path(folder) / "check.yaml"
            file.write_text(to_yaml(recipe))
            planner, steps = planning.make(load_recipe(str(file)), planning.RunOptions(Path(folder) / "runs"))
            yield context_of(planner, "check", {step.name: step for step in steps}, Silent())

    def problems(self) -> list[Problem]:
        """What a preflight says of the stage: a training step of it on invented data."""
        try:
            with self.context() as context:
                return smoke_test(context)
        except VlcliError as error:
            return [Problem("check", error.what, got=error.got, expected=error.expected)]


class Refused(Failure):
    """Every model was refused."""


PARTNERS = (
    "lxmert",
    "dimbert",
    "albef",
    "vlmo",
    "deit",
    "swin",
    "detr",
    "region-classifier",
    "noisy-or",
    "faster-rcnn",
)
"""Models with which objectives and tasks are tried, in this order."""
DATA = [{"name": "captions", "file": "absent.jsonl"}]


def step_with(stage: dict[str, Any], partners: Iterator[dict[str, Any]]) -> Trial:
    """A clean training step with some model.

    Raises:
        Failure: a step fails, or every model is refused.
    """
    refusals = []
    for partner in partners:
        trial = Trial(partner, stage)
        problems = trial.problems()
        if not problems:
            return trial
        failing = [p for p in problems if "one step on invented data" in p.what]
        if failing:
            raise Failure(f"with {partner['name']}: {failing[0].what}: {failing[0].got}", "a training step")
        refusals.append(f"{partner['name']}: {problems[0].what} {problems[0].got}".strip())
    raise Refused("; ".join(refusals[:3]), "a training step with one of the models that vlcli has")


def models_for(entry: Entry) -> Iterator[dict[str, Any]]:
    """The models with which a component is tried: of its own package first."""
    own = [e.name for e in registry.entries("models") if e.distribution == entry.distribution != "vlcli"]
    known = [name for name in PARTNERS if name in registry.names("models")]
    for name in [*own, *known]:
        yield small(name)
    if "albef" in known:
        yield from (small("albef") | more for more in ({"decoder_layers": 1}, {"images": 2}))


@lru_cache(maxsize=4)
def objective_trial(entry: Entry) -> Trial:
    """A training step of an objective, with those that it reads."""
    target = registry.load("objectives", f"{entry.distribution}:{entry.name}")
    reads = [words.split("|")[0] for words in target.reads]
    stage: dict[str, Any] = {"objectives": [*reads, entry.name], "data": DATA}
    usual = next((name for name, own in _tasks().items() if entry.name in own), None)
    try:
        return step_with(stage | ({"kind": "finetune", "task": usual} if usual else {}), models_for(entry))
    except Refused:  # a head that needs labels of a task
        return step_with(stage | {"kind": "finetune", "task": "snli-ve"}, models_for(entry))


def _tasks() -> dict[str, list[str]]:
    """The objectives that each task trains by default."""
    found = {}
    for name in registry.names("tasks"):
        target = registry.load("tasks", name)
        if not any(parameter.required for parameter in registry.parameters(target).values()):
            try:
                found[name] = [registry.as_spec(spec)["name"] for spec in target().objectives()]
            except (NotImplementedError, VlcliError):
                continue
    return found


@lru_cache(maxsize=4)
def task_trial(entry: Entry) -> Trial:
    """A fine-tuning step of a task with its own objectives."""
    target = registry.load("tasks", f"{entry.distribution}:{entry.name}")
    if getattr(target, "fitted", False):
        raise DoesNotApply("a task that is fitted without a model")
    if entry.name not in _tasks():
        raise DoesNotApply("a task without objectives of its own, or with options that have no default")
    return step_with({"kind": "finetune", "task": entry.name, "data": DATA}, models_for(entry))


SLOTS = {
    "mlm": [
        *(("lxmert", "image_position"), ("lxmert", "text_position"), ("uniter", "position")),
        *(("albef", "image_position"), ("albef", "cross_position")),
    ],
    "image-classification": [("deit", "position"), ("swin", "position")],
    "detection": [("detr", "position")],
}
"""Slots in which a position encoding is tried: models and their parameter, by objective."""


def position_trial(entry: Entry) -> Trial:
    """A training step of a model that holds the encoding, in the first slot that takes it."""
    refused: Refused | None = None
    for objective, slots in SLOTS.items():
        stage = {"objectives": [objective], "data": DATA}
        task = {} if objective == "mlm" else {"kind": "finetune", "task": objective}
        try:
            return step_with(stage | task, ({**small(model), slot: entry.name} for model, slot in slots))
        except Refused as reason:
            refused = refused or reason
    raise refused or Refused("no slot takes it", "a slot of a model")


def attention_trial(entry: Entry) -> Trial:
    """A training step of a model with the attention."""
    return step_with({"objectives": ["mlm"], "data": DATA}, iter([{**small("lxmert"), "attention": entry.name}]))


PLAIN = ("mlm", "contrast", "masked-concept", "bag-contrast")
"""Objectives with which a model is trained; those of its own package follow, which may be wrong themselves."""
PLAIN_TASKS = ("image-classification", "detection", "segmentation", "concepts", "vqa", "nlvr2", "captioning")
"""Tasks with which it is trained where it takes none of them."""


@lru_cache(maxsize=4)
def model_trial(entry: Entry) -> Trial:
    """A training step of a model, with the first objective or task that it takes.

    Raises:
        DoesNotApply: it takes none.
    """
    own = [e.name for e in registry.entries("objectives") if e.distribution == entry.distribution != "vlcli"]
    known, tasks = registry.names("objectives"), registry.names("tasks")
    stages: list[dict[str, Any]] = [{"objectives": [name]} for name in (*PLAIN, *own) if name in known]
    stages += [{"kind": "finetune", "task": name} for name in PLAIN_TASKS if name in tasks]
    for stage in stages:
        trial = Trial(small(entry.name, entry.distribution), stage | {"data": DATA})
        if not trial.problems():
            return trial
    raise DoesNotApply("a model that none of the objectives tried here trains")


TRIALS: dict[str, Callable[[Entry], Trial]] = {
    "models": model_trial,
    "objectives": objective_trial,
    "tasks": task_trial,
    "positions": position_trial,
    "attentions": attention_trial,
}
"""By kind, the stage that tries a component; each has been run once when it is returned."""


def step(entry: Entry) -> None:
    """A training step of a stage with the component."""
    TRIALS[entry.kind](entry)
