"""Tries components in a training step on invented data, with a small model."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from vlcli import registry
from vlcli.builders.context import StageContext
from vlcli.errors import Problem, VlcliError
from vlcli.plugin_kit.conformance import DoesNotApply, Failure
from vlcli.progress import Silent
from vlcli.recipe import plan as planning
from vlcli.recipe.load import load as load_recipe
from vlcli.recipe.yaml import to_yaml
from vlcli.registry import Entry
from vlcli.runner.execute import context_of
from vlcli.runner.trial_step import trial_step

# Small values of the options that models share (docs/glossary.md); a model takes those that it has.
_SMALL: dict[str, Any] = {
    **dict.fromkeys(("text_layers", "image_layers", "cross_layers", "fused_layers", "encoder_layers"), 1),
    **{"hidden": 16, "heads": 2, "layers": 1, "intermediate": 32, "width": 16, "queries": 4, "classes": None},
    **{"image_size": 32, "patch": 16, "arch": "tiny-conv", "backbone": "tiny-conv", "size": 32},
}
_LAYERS = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
_TOWERS = {"image": {"model_type": "vit", "image_size": 32, **_LAYERS}, "text": {"model_type": "bert", **_LAYERS}}
_OF_MODEL: dict[str, dict[str, Any]] = {
    "swin": {"hidden": 8, "heads": [1, 2], "layers": [1, 1], "patch": 4, "window": 4},
    "detr": {"decoder_layers": 1, "image_size": [64, 64]},
    "vlmo": {"layers": 2},
    "film": {"convolutions": [8, 16]},
    "two-tower": _TOWERS,
    "two-tower-fused": _TOWERS,
}
_DATA = [{"name": "captions", "file": "absent.jsonl"}]
# Models with which objectives and tasks are tried, in this order.
_PARTNERS = [
    *("lxmert", "dimbert", "albef", "vlmo", "deit", "swin", "detr"),
    *("region-classifier", "noisy-or", "faster-rcnn"),
]
# Objectives with which a model is tried; those of its package follow, which may be wrong themselves.
_PLAIN = ("mlm", "contrast", "masked-concept", "bag-contrast")
# Tasks with which a model is tried that takes none of the objectives.
_PLAIN_TASKS = ("image-classification", "detection", "segmentation", "concepts", "vqa", "nlvr2", "captioning")
# Slots in which a position encoding is tried: models and their parameter, by objective.
_SLOTS = {
    "mlm": [
        *(("lxmert", "image_position"), ("lxmert", "text_position"), ("uniter", "position")),
        *(("albef", "image_position"), ("albef", "cross_position")),
    ],
    "image-classification": [("deit", "position"), ("swin", "position")],
    "detection": [("detr", "position")],
}


def small(name: str, distribution: str = "") -> dict[str, Any]:
    """Return a model's recipe entry with those small sizes that the model takes."""
    full = f"{distribution}:{name}" if distribution else name
    options = registry.parameters(registry.load("models", full))
    spec = {"name": full, **{key: value for key, value in (_SMALL | _OF_MODEL.get(name, {})).items() if key in options}}
    wrong = {problem.key.rpartition(".")[2] for problem in registry.check("models", spec)}
    return {key: value for key, value in spec.items() if key not in wrong}


class Trial(NamedTuple):
    """A stage that tries a component: the entry of the small model, and the stage's section of a recipe."""

    model: dict[str, Any]
    stage: dict[str, Any]
    double: bool = False  # whether the step computes in double precision, which tells a fault from rounding

    @contextmanager
    def context(self) -> Iterator[StageContext]:
        with tempfile.TemporaryDirectory() as folder:
            text = {"vocabulary": {"train": {"name": "plain-text", "split": "train"}, "size": 50}, "length": 12}
            stages = {"check": {"kind": "pretrain", "steps": 1} | self.stage}
            recipe = {"schema": 1, "root": folder, "model": self.model, "text": text, "stages": stages}
            file = Path(folder) / "check.yaml"
            file.write_text(to_yaml(recipe))
            planner, steps = planning.make(load_recipe(str(file)), planning.RunOptions(Path(folder) / "runs"))
            yield context_of(planner, "check", {step.name: step for step in steps}, Silent())

    def problems(self) -> list[Problem]:
        try:
            with self.context() as context:
                return trial_step(context)
        except VlcliError as error:
            return [Problem("check", error.what, got=error.got, expected=error.expected)]


class _Refused(Failure):
    """No model takes the component."""


def _step_with(stage: dict[str, Any], models: Iterable[dict[str, Any]]) -> Trial:
    """Return the first trial without problems. Raises Failure: a step fails, or every model is refused."""
    refusals = []
    for model in models:
        trial = Trial(model, stage | {"data": _DATA})
        problems = trial.problems()
        if not problems:
            return trial
        failing = [p for p in problems if "one step on invented data" in p.what]
        if failing:
            raise Failure(f"with {model['name']}: {failing[0].what}: {failing[0].got}", "a training step")
        refusals.append(f"{model['name']}: {problems[0].what} {problems[0].got}".strip())
    raise _Refused("; ".join(refusals[:3]), "a training step with one of the models that vlcli has")


def _of_package(kind: str, entry: Entry) -> list[str]:
    return [e.name for e in registry.entries(kind) if e.distribution == entry.distribution != "vlcli"]


def _models_for(entry: Entry) -> Iterator[dict[str, Any]]:
    known = [name for name in _PARTNERS if name in registry.names("models")]
    for name in [*_of_package("models", entry), *known]:
        yield small(name)
    if "albef" in known:
        yield from (small("albef") | more for more in ({"decoder_layers": 1}, {"images": 2}))


@lru_cache(maxsize=4)
def _objective_trial(entry: Entry) -> Trial:
    target = registry.load("objectives", f"{entry.distribution}:{entry.name}")
    stage: dict[str, Any] = {"objectives": [*(words.split("|")[0] for words in target.reads), entry.name]}
    usual = next((name for name, objectives in _tasks().items() if entry.name in objectives), None)
    try:
        return _step_with(stage | ({"kind": "finetune", "task": usual} if usual else {}), _models_for(entry))
    except _Refused:  # a head that needs labels of a task
        return _step_with(stage | {"kind": "finetune", "task": "snli-ve"}, _models_for(entry))


def _tasks() -> dict[str, list[str]]:
    tasks = {}
    for name in registry.names("tasks"):
        target = registry.load("tasks", name)
        if not any(parameter.required for parameter in registry.parameters(target).values()):
            with suppress(NotImplementedError, VlcliError):
                tasks[name] = [registry.as_spec(spec)["name"] for spec in target().objectives()]
    return tasks


@lru_cache(maxsize=4)
def _task_trial(entry: Entry) -> Trial:
    if getattr(registry.load("tasks", f"{entry.distribution}:{entry.name}"), "fitted", False):
        raise DoesNotApply("a task that is fitted without a model")
    if entry.name not in _tasks():
        raise DoesNotApply("a task without objectives of its own, or with options that have no default")
    return _step_with({"kind": "finetune", "task": entry.name}, _models_for(entry))


def _position_trial(entry: Entry) -> Trial:
    refused: list[_Refused] = []
    for objective, slots in _SLOTS.items():
        task = {} if objective == "mlm" else {"kind": "finetune", "task": objective}
        models = ({**small(model), slot: entry.name} for model, slot in slots)
        try:
            return _step_with({"objectives": [objective], **task}, models)
        except _Refused as reason:
            refused.append(reason)
    raise refused[0]


@lru_cache(maxsize=4)
def _model_trial(entry: Entry) -> Trial:
    objectives, tasks = registry.names("objectives"), registry.names("tasks")
    names = [name for name in (*_PLAIN, *_of_package("objectives", entry)) if name in objectives]
    stages: list[dict[str, Any]] = [{"objectives": [name]} for name in names]
    stages += [{"kind": "finetune", "task": name} for name in _PLAIN_TASKS if name in tasks]
    for stage in stages:
        trial = Trial(small(entry.name, entry.distribution), stage | {"data": _DATA})
        if not trial.problems():
            return trial
    raise DoesNotApply("a model that none of the objectives tried here trains")


# By kind, a function that runs a stage with the component and returns it
TRIALS: dict[str, Callable[[Entry], Trial]] = {
    "models": _model_trial,
    "objectives": _objective_trial,
    "tasks": _task_trial,
    "positions": _position_trial,
    "attentions": lambda entry: _step_with({"objectives": ["mlm"]}, [{**small("lxmert"), "attention": entry.name}]),
}


def step(entry: Entry) -> None:
    """A training step of a stage with the component runs."""
    TRIALS[entry.kind](entry)
