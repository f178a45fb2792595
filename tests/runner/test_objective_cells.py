"""Every objective on every model: one clean step on invented data, or a reason in words.

``python -m pytest tests/runner/test_objective_cells.py -n 0 -s -k table`` prints the table of all cells.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from cells import TINY, models
from torch import nn

from vlcli import registry
from vlcli.errors import ComponentError, Problem
from vlcli.nn import EncoderOutput, FusionOutput, InputSpec, Layout, Model
from vlcli.objectives import Mean, Objective, ObjectiveOutput
from vlcli.progress import Silent
from vlcli.recipe import plan as planning
from vlcli.recipe.load import load
from vlcli.recipe.yaml import to_yaml
from vlcli.registry import as_spec
from vlcli.runner.execute import context_of
from vlcli.runner.trial_step import trial_step
from vlcli.tasks.base import Task

OBJECTIVES = sorted(entry.name for entry in registry.entries("objectives") if entry.distribution == "vlcli")
LARGER = {
    "albef": {"image_size": 32, "patch": 8},
    "vlmo": {"image_size": 32, "patch": 8},
    "deit": {"image_size": 32, "patch": 8},
    "swin": {"image_size": 32, "patch": 4},
}
"""Sizes for pictures of 32 pixels."""
SETTINGS = {
    "two pictures": ("albef", {"images": 2, "bidirectional": False}, {"text-assignment"}, None),
    "pictures and label maps": ("swin", {}, {"segmentation"}, "segmentation"),
    "entailment": ("albef", {}, {"distilled-classification"}, "snli-ve"),
    "grid features": (
        "albef",
        {"image": "features", "grid": [2, 2]},
        {"masked-object", "masked-roi", "region-selection"},
        None,
    ),
}
"""Options of models, and tasks, that further cells need: label, model, its options, objectives, task."""


def rehearsed(model: str, objectives: dict[str, dict], **options) -> dict[str, list[Problem]]:
    """What a preflight says of a stage for each of ``objectives``, on invented data."""
    folder = Path(mkdtemp())
    stages = {name: {"kind": "pretrain", "steps": 1, **stage} for name, stage in objectives.items()}
    recipe = {
        "schema": 1,
        "root": str(folder),
        "model": {"name": model, **TINY[model], **LARGER.get(model, {}), **options},
        "text": {"vocabulary": {"train": {"name": "plain-text", "split": "train"}, "size": 50}, "length": 12},
        "stages": stages,
    }
    file = folder / "cells.yaml"
    with file.open("w") as stream:
        stream.write(to_yaml(recipe))
    planner, steps = planning.make(load(str(file)), planning.RunOptions(folder / "runs"))
    by_name = {step.name: step for step in steps}
    return {name: trial_step(context_of(planner, name, by_name, Silent())) for name in stages}


@cache
def usual_tasks() -> dict[str, str]:
    """The task of each objective that some task trains by default: it says which answers and inputs there are."""
    found: dict[str, str] = {}
    for name in registry.names("tasks"):
        task = registry.load("tasks", name)
        if getattr(task, "fitted", True):  # it trains no model
            continue
        if task.objectives is not Task.objectives and not any(p.required for p in registry.parameters(task).values()):
            found |= {as_spec(spec)["name"]: name for spec in task().objectives() if as_spec(spec)["name"] not in found}
    return found


def stage(objective: str, task: str | None = None) -> dict:
    """A stage of one objective and those it reads; a fine-tuning where it has a task."""
    task = task or usual_tasks().get(objective)
    partners = [words.split("|")[0] for words in registry.load("objectives", objective).reads]
    made = {"objectives": [*partners, objective], "data": [{"name": "captions", "file": "absent.jsonl"}]}
    return {**made, "kind": "finetune", "task": task} if task else made


@cache
def column(model: str) -> dict[str, str]:
    """What every objective says of a model: empty for a clean step, else the reason."""
    found = rehearsed(model, {name: stage(name) for name in OBJECTIVES})
    return {name: reason(problems) for name, problems in found.items()}


def reason(problems: list[Problem]) -> str:
    """The reason of a refusal, checked to be one in words."""
    for problem in problems:
        text = f"{problem.what} {problem.got}"
        assert "one step on invented data" not in text, str(problem)
        assert not any(word in text for word in ("Error:", "NoneType", "object has no attribute")), str(problem)
        assert problem.got or problem.expected or problem.hint, str(problem)
    return "; ".join(f"{p.what} ({p.got})" for p in problems)


FIRST = ("lxmert", "vlmo", "deit", "albef", "butd", "detr")
"""The models whose reasons are looked at below; the others among the slow tests."""


@pytest.mark.parametrize("model", [m if m in FIRST else pytest.param(m, marks=pytest.mark.slow) for m in models()])
def test_every_objective_steps_or_says_why(model):
    assert set(column(model)) == set(OBJECTIVES)


@pytest.mark.parametrize("setting", SETTINGS)
def test_cells_that_need_a_setting(setting):
    model, options, names, task = SETTINGS[setting]
    found = rehearsed(model, {name: stage(name, task) for name in names}, **options)
    said = {name: reason(problems) for name, problems in found.items()}
    assert not any(said.values()) or setting == "grid features", said


@pytest.mark.slow
def test_every_objective_has_a_clean_cell():
    elsewhere = {name for _, _, names, _ in SETTINGS.values() for name in names}
    for name in OBJECTIVES:
        assert name in elsewhere or any(not column(model)[name] for model in models()), name


def test_reasons_for_what_used_to_fail_without_words():
    lacking = "needs a model that reads: "
    assert f"{lacking}text (DeiT, which reads: pixels)" in column("deit")["mlm"]
    assert f"{lacking}regions (ALBEF, which reads: pixels, text)" in column("albef")["masked-object"]
    assert f"{lacking}regions" in column("vlmo")["region-selection"]
    assert "needs a model with: word_table" in column("butd")["mlm"]
    assert "does not describe each given box" in column("detr")["region-labels"]
    assert "gives no vector for a whole picture" in column("lxmert")["image-classification"]
    assert column("butd")["contrast-matching"] == ""


@pytest.mark.slow
def test_table(capsys):
    """Prints all cells (with ``-s``); none that once acted is lost."""
    with capsys.disabled():
        for model in models():
            print(f"\n{model}")
            for name, why in column(model).items():
                print(f"  {name:26} {'acts' if not why else 'refused: ' + why}")
        acting = sum(not why for model in models() for why in column(model).values())
        print(f"\n{acting} cells act, {len(models()) * len(OBJECTIVES) - acting} are refused")
    assert acting >= 128


BROKEN = '        return step.batch.targets["no such target"]'


class Broken(Objective):
    """An objective whose author made a mistake."""

    def forward(self, step, others):
        """Fails."""
        return step.batch.targets["no such target"]


def test_an_unforeseen_fault_names_the_component_and_the_line(monkeypatch):
    register(monkeypatch, "objectives", "broken-objective", Broken)
    (problem,) = rehearsed("lxmert", {"one": stage("broken-objective")})["one"]
    line = (
        Path(__file__)
        .read_text(encoding="utf-8")
        .splitlines()
        .index('        return step.batch.targets["no such target"]')
    )
    assert (
        problem.what == f"one step on invented data fails in the objective 'broken-objective' ({__file__}:{line + 1})"
    )
    assert problem.got == "KeyError: 'no such target'"
    assert problem.code == ComponentError.exit_code


class Bare(Objective):
    """An objective that returns a number."""

    def forward(self, step, others):
        """No output."""
        return step.batch.clean.text.ids.float().mean()


def test_what_an_objective_returns_is_told_with_its_name_and_file(monkeypatch):
    register(monkeypatch, "objectives", "bare-objective", Bare)
    (problem,) = rehearsed("lxmert", {"one": stage("bare-objective")})["one"]
    assert "The objective 'bare-objective' gives no losses." in problem.what
    assert __file__ in problem.what
    assert problem.got == "Tensor"


class Numb(Model):
    """A model whose fusion is of another width than it says."""

    capabilities = frozenset({"text", "image", "fuse"})
    dim = 8

    def __init__(self, data_spec):
        super().__init__(data_spec)
        self.words, self.look = nn.Embedding(data_spec.vocab_size, 8), nn.Linear(data_spec.region_dim, 8)

    def input_spec(self):
        return InputSpec(text=True, regions=True)

    def encode_text(self, text, record=None):
        return EncoderOutput(self.words(text.ids), Layout.for_text(text.mask))

    def encode_image(self, images, record=None):
        regions = images.regions
        return EncoderOutput(self.look(regions.features), Layout.for_boxes(regions.boxes, regions.mask))

    def fuse(self, text, image, record=None):
        return FusionOutput(text, image, text.hidden[:, 0, :3])


def test_what_fails_on_the_output_of_a_strangers_model_names_the_model(monkeypatch):
    register(monkeypatch, "models", "numb-model", Numb)
    monkeypatch.setitem(TINY, "numb-model", {})
    (problem,) = rehearsed("numb-model", {"one": stage("matching")})["one"]
    assert f"on what comes from 'numb-model' ({__file__}" in problem.hint


class Idle(Objective):
    """An objective that finds nothing to do."""

    def forward(self, step, others):
        """No loss."""
        from vlcli.objectives.base import ObjectiveOutput

        return ObjectiveOutput({})


def test_objectives_without_anything_to_learn_are_refused(monkeypatch):
    register(monkeypatch, "objectives", "idle-objective", Idle)
    (problem,) = rehearsed("lxmert", {"one": stage("idle-objective")})["one"]
    assert problem.what == "the objectives have nothing to learn from these data with this model"
    assert problem.got == "idle-objective"


def register(monkeypatch, kind, name, value):
    registered = sys.modules["vlcli.registry.entries"]
    monkeypatch.setattr(registered, "_session", dict(registered._session))
    registry.register(kind, name, value)


class LabelReader(Objective):
    """An objective that finds its labels in the data and has no table of a known size."""

    requires = frozenset({"fuse"})

    def __init__(self, model, data_spec):
        super().__init__(model, data_spec)
        self.head = nn.Linear(model.dim, len(data_spec.answers))

    @classmethod
    def labels(cls, spec, readers):
        return tuple(readers[0].label_names())

    def forward(self, step, others):
        losses = nn.functional.cross_entropy(
            self.head(step.fused().by_example()), step.batch.targets["label"], reduction="none"
        )
        return ObjectiveOutput({"label": Mean.of(losses)})


def test_an_objective_that_finds_its_labels_is_tried_with_some(monkeypatch):
    register(monkeypatch, "objectives", "label-reader", LabelReader)
    assert rehearsed("lxmert", {"labels": stage("label-reader")}) == {"labels": []}
