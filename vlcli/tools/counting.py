"""Counts parameters per part and multiply-accumulates of a recipe's model."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from vlcli.builders.resolve import resolve_stage
from vlcli.engine.bundle import find_bundle, read_bundle
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.errors import ComponentError, UsageError
from vlcli.nn.count import count_model
from vlcli.nn.fake import without_memory
from vlcli.nn.model import DataSpec
from vlcli.progress import Silent
from vlcli.recipe import plan as planning
from vlcli.recipe.locate import Resolved
from vlcli.recipe.schema import Training, TrainVocabulary
from vlcli.registry import Spec, load
from vlcli.runner.execute import context_of

# Sizes of published vocabularies, whose files are not needed for counting
VOCABULARIES = {"bert-base-uncased": 30_522, "bert-base-cased": 28_996}
Planned = tuple[planning.Planner, list[planning.PlannedStage]]


def count(
    resolved: Resolved,
    stage: str | None = None,
    *,
    answers: int | None = None,
    output: Path = Path("runs"),
    heads: bool = True,
) -> dict[str, Any]:
    """Count the model of a recipe's training stage on the meta device. Raises UsageError: there is no such stage.

    Sizes that the data decide come from the finished stage where there is one; else they are the papers' (30,522 words,
    36 regions of 2048 numbers or the model's own grid, the usual answer tables) with the recipe's text length and
    vocabulary size.

    Args:
        stage: a training stage; None: the first pre-training, else fine-tuning, and parameters of all others.
        heads: whether the objectives' heads count too.
    """
    training, name = training_stages(resolved), stage or first_stage(resolved)
    if not training:
        what, expected = "The recipe trains nothing, so there is no model to count.", "a pretrain or finetune stage"
        raise UsageError(what, where=resolved.reference, expected=expected)
    if name not in training:
        what, expected = "This is no training stage of the recipe.", ", ".join(training)
        raise UsageError(what, where=resolved.reference, got=name, expected=expected)
    plan = planning.make(resolved, planning.RunOptions(output))
    built = _build(plan, name, answers, heads)
    objectives = dict(built.module.objectives.items())
    counts = count_model(built.module.model, data_spec=built.data_spec, objectives=objectives, images=built.images)
    counts = {"stage": name, "model": built.model, "images": built.images, **counts}
    return counts if stage else {**counts, "stages": {one: _sums(plan, one, answers, heads) for one in training}}


def first_stage(resolved: Resolved) -> str:
    """Return the stage that is counted where none is named; empty where the recipe trains nothing."""
    return next(iter(resolved.of_kind("pretrain") + training_stages(resolved)), "")


def training_stages(resolved: Resolved) -> list[str]:
    """Return the names of the stages that train."""
    return [name for name, stage in resolved.stages.items() if isinstance(stage, Training)]


class Built(NamedTuple):
    """A stage's training module on the meta device, the specs it was built from, and the images of an example."""

    module: TrainingModule
    model: Spec
    data_spec: DataSpec
    images: int


def build_stage(resolved: Resolved, name: str, output: Path) -> Built:
    """Build a training stage's module with its heads on the meta device. Raises UsageError: it names no model."""
    return _build(planning.make(resolved, planning.RunOptions(output)), name, None, True)


def _build(plan: Planned, name: str, answers: int | None, heads: bool) -> Built:
    planner, steps = plan
    resolved = resolve_stage(context_of(planner, name, {step.name: step for step in steps}, Silent()))
    model, task = resolved.model, resolved.built_task
    if not model:
        raise UsageError("The stage names no model.", where=f"stages.{name}.model")
    entries = [dict(one) for one in resolved.objectives] if heads else []
    artifact = next((step.artifact for step in steps if step.name == name), None)
    if artifact is not None and find_bundle(artifact) is not None:
        data_spec = read_bundle(artifact).data_spec
    else:
        data_spec, vocabulary = DataSpec(text_length=resolved.text.length), resolved.text.vocabulary
        known = vocabulary.size if isinstance(vocabulary, TrainVocabulary) else VOCABULARIES.get(Path(vocabulary).name)
        data_spec = replace(data_spec, vocab_size=known or data_spec.vocab_size)
        usual = [0 if task is None else task.usual_answers]
        usual += [load("objectives", entry["name"]).usual_answers for entry in entries]
        answers = answers or usual[0] or max(usual)
    if answers:
        data_spec = replace(data_spec, answers=tuple(f"answer {i}" for i in range(answers)))
    module = without_memory(lambda: build_training_module(model, entries, data_spec))
    return Built(module, model, data_spec, max((int(entry.get("images", 1)) for entry in entries), default=1))


def _sums(plan: Planned, name: str, answers: int | None, heads: bool) -> dict[str, Any]:
    try:
        module = _build(plan, name, answers, heads).module
    except ComponentError as error:
        return {"backbone": None, "total": None, "why": error.what}
    copies = [n.startswith("teacher.") or "_copy." in n for n, _ in module.named_parameters()]  # of momentum
    return {
        "backbone": sum(parameter.numel() for parameter in module.model.parameters()),
        "total": sum(p.numel() for p, copy in zip(module.parameters(), copies, strict=True) if not copy),
    }
