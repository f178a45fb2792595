"""What a recipe's model costs: parameters per part and multiply-accumulates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vlcli.builders.resolve import resolve_stage
from vlcli.engine.bundle import find_bundle, read_bundle
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.errors import ComponentError, UsageError
from vlcli.nn.count import count_model
from vlcli.nn.model import DataSpec
from vlcli.nn.undrawn import without_memory
from vlcli.progress import Silent
from vlcli.recipe import plan as planning
from vlcli.recipe.resolved import Resolved
from vlcli.recipe.schema import TextOptions, Training, TrainVocabulary
from vlcli.registry import Spec, load
from vlcli.runner.execute import context_of
from vlcli.tasks.base import Task

VOCABULARIES = {"bert-base-uncased": 30_522, "bert-base-cased": 28_996}
"""Words of published vocabularies, which need not lie here to be counted."""
Planned = tuple[planning.Planner, list[planning.PlannedStage]]


def count(
    resolved: Resolved,
    stage: str | None = None,
    *,
    answers: int | None = None,
    output: Path = Path("runs"),
    heads: bool = True,
) -> dict[str, Any]:
    """Count the model of a recipe's training stage on the meta device.

    Sizes that the data decide come from the finished stage where there is one; else they are the papers' (30,522 words,
    36 regions of 2048 numbers or the model's own grid, the usual answer tables) with the recipe's own text length and
    vocabulary size.

    Args:
        resolved: the recipe.
        stage: a training stage; None: the first pre-training, else the first fine-tuning; the parameters of all others
            are then given too, by stage.
        answers: rows of an answer head.
        output: folder of all runs.
        heads: whether the objectives' heads count too.

    Raises:
        UsageError: the recipe has no such training stage.
    """
    training, name = _training(resolved), stage or first_stage(resolved)
    if not training:
        raise UsageError(
            "The recipe trains nothing, so there is no model to count.",
            where=resolved.reference,
            expected="a pretrain or finetune stage",
        )
    if name not in training:
        raise UsageError(
            "This is no training stage of the recipe.",
            where=resolved.reference,
            got=name,
            expected=", ".join(training),
        )
    plan = planning.make(resolved, planning.RunOptions(output))
    made = _build(plan, name, answers, heads)
    objectives = dict(made.module.objectives.items())
    found = count_model(made.module.model, data_spec=made.data_spec, objectives=objectives, images=made.images)
    counted = {"stage": name, "model": made.model, "images": made.images, **found}
    return (
        counted if stage else {**counted, "stages": {other: _sums(plan, other, answers, heads) for other in training}}
    )


def first_stage(resolved: Resolved) -> str:
    """The stage that is counted where none is named; empty where the recipe trains nothing."""
    return next(iter(resolved.of_kind("pretrain") + _training(resolved)), "")


def _training(resolved: Resolved) -> list[str]:
    return [name for name, stage in resolved.stages.items() if isinstance(stage, Training)]


@dataclass
class Built:
    """A stage's training module on the meta device, and what it was built from."""

    module: TrainingModule
    model: Spec
    data_spec: DataSpec
    images: int


def _build(plan: Planned, name: str, answers: int | None, heads: bool) -> Built:
    planner, steps = plan
    context = context_of(planner, name, {step.name: step for step in steps}, Silent())
    resolved = resolve_stage(context)
    model, task = resolved.model, resolved.built_task
    if not model:
        raise UsageError("The stage names no model.", where=f"stages.{name}.model")
    entries = [dict(one) for one in resolved.objectives] if heads else []
    artifact = next((step.artifact for step in steps if step.name == name), None)
    data_spec = _data_spec(resolved.text, artifact, answers, _usual_answers(task, entries))
    module = without_memory(lambda: build_training_module(model, entries, data_spec))
    return Built(module, model, data_spec, max((int(entry.get("images", 1)) for entry in entries), default=1))


def build_stage(resolved: Resolved, name: str, output: Path) -> Built:
    """A training stage's module on the meta device, with its heads.

    Raises:
        UsageError: the stage names no model.
    """
    return _build(planning.make(resolved, planning.RunOptions(output)), name, None, True)


def _sums(plan: Planned, name: str, answers: int | None, heads: bool) -> dict[str, Any]:
    """Parameters of a stage's model and of all it trains; what is amiss where it cannot be built yet."""
    try:
        made = _build(plan, name, answers, heads)
    except ComponentError as error:
        return {"backbone": None, "total": None, "why": error.what}
    return {
        "backbone": sum(parameter.numel() for parameter in made.module.model.parameters()),
        "total": sum(p.numel() for n, p in made.module.named_parameters() if not _copied(n)),
    }


def _copied(name: str) -> bool:
    """Whether a parameter is a momentum copy's, of the model or of a head."""
    return name.startswith("teacher.") or "_copy." in name


def _usual_answers(task: Task | None, objectives: list[Spec]) -> int:
    if task is not None and task.usual_answers:
        return task.usual_answers
    return max((load("objectives", entry["name"]).usual_answers for entry in objectives), default=0)


def _data_spec(text: TextOptions, artifact: Path | None, answers: int | None, usual: int) -> DataSpec:
    if artifact is not None and find_bundle(artifact) is not None:
        data_spec = read_bundle(artifact).data_spec
        usual = 0
    else:
        data_spec = DataSpec(text_length=text.length)
        if isinstance(text.vocabulary, TrainVocabulary):
            data_spec = replace(data_spec, vocab_size=text.vocabulary.size)
        elif size := VOCABULARIES.get(text.vocabulary.rsplit("/", 1)[-1]):
            data_spec = replace(data_spec, vocab_size=size)
    rows = answers or usual
    return replace(data_spec, answers=tuple(f"answer {i}" for i in range(rows))) if rows else data_spec
