"""Decides the model, task, objectives, data, text, transform and sources of a stage.

The stage's keys come first, then the configuration of the trained model that it starts from (the first of its sources
that is one), then the recipe's. The *model* is that of the source if the source is a stage of the same recipe, else the
recipe's, else that of a source outside the recipe, which also supplies keys that the recipe's model of the same name
leaves out. The stage's ``model`` changes the result; if it names another model, its keys alone are used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vlcli import registry
from vlcli.recipe.schema import Average, Reading, Recipe, Stage, TextOptions, Training
from vlcli.registry.contract import CONTRACTS, blamed, overrides
from vlcli.registry.schema import Spec, as_spec


@dataclass(frozen=True)
class Kept:
    """Specs in the bundle of a trained model; ``text`` is None if it reads no text."""

    model: Spec | None = None
    task: Spec | None = None
    text: TextOptions | None = None
    transform: Spec | None = None


ReadKept = Callable[[str], Kept | None]
"""Reads the trained model that a word of ``from`` names; None if there is none (yet)."""


@dataclass(frozen=True)
class ResolvedStage:
    """Components and options of one stage.

    Attributes:
        sources: the words of ``from`` that may give weights: no stages of features or data, no stores.
        model: None if nothing names one.
        task: None if it has none; a training stage has only the task that it names itself.
    """

    stage: Stage
    sources: tuple[str, ...]
    model: Spec | None
    task: Spec | None
    text: TextOptions
    transform: Spec | None

    @cached_property
    def built_task(self) -> Any:
        """The task, built (a ``vlcli.tasks.base.Task``); None if there is none."""
        return None if self.task is None else registry.build("tasks", self.task)

    @cached_property
    def objectives(self) -> list[Spec]:
        """A training stage's objectives, else those of its task."""
        if not isinstance(self.stage, Training):
            return []
        return list(self.stage.objectives or self._asked(lambda task: [as_spec(one) for one in task.objectives()]))

    @cached_property
    def data(self) -> list[Spec]:
        """The stage's data sets, else its task's own; for stages that read with a trained model, with their split."""
        named = [dict(as_spec(one)) for one in getattr(self.stage, "data", [])]
        if isinstance(self.stage, Training):
            return named or [{"split": "train", **one} for one in self._own_data()]
        if not isinstance(self.stage, Reading):
            return named
        return [self._with_split(one) for one in named or self._own_data()]

    def _own_data(self) -> list[Spec]:
        task, bases = self.built_task, CONTRACTS["tasks"].bases
        if task is None or not (getattr(task, "usual_data", "") or overrides(type(task), "dataset", bases)):
            return []
        return self._asked(lambda task: [dict(as_spec(task.dataset()))])

    def _with_split(self, spec: Spec) -> Spec:
        split = getattr(self.stage, "split", None)
        if split is not None:
            return {**spec, "split": split}
        if "split" in spec or self.task is None:
            return spec
        takes = "split" in registry.parameters(registry.load("datasets", spec["name"]))
        return {**spec, "split": self.built_task.eval_split} if takes else spec

    def _asked(self, ask: Callable[[Any], list[Spec]]) -> list[Spec]:
        if self.task is None:
            return []
        with blamed("tasks", self.task["name"], type(self.built_task)):
            return ask(self.built_task)


def resolve(recipe: Recipe, stage: Stage, read: ReadKept = lambda _: None) -> ResolvedStage:
    """Decides what a stage of a checked recipe will do.

    ``read`` reads trained models that exist (by default none); stages of the recipe without a result are resolved too.
    """
    weights = {name: recipe.stages[name].gives_weights for name in stage.source if name in recipe.stages}
    sources = tuple(name for name in stage.source if weights.get(name, not name.endswith(".h5")))
    name, kept = _first_kept(recipe, stage, sources, read)
    model = resolve_model(recipe.model, getattr(stage, "model", None), kept.model, inside=name in recipe.stages)
    task: Spec | None = getattr(stage, "task", None)
    if isinstance(stage, Reading) and kept.task is not None:  # the model's task, with its options if it alone is named
        task = kept.task if task in (None, {"name": as_spec(kept.task)["name"]}) else task
    return ResolvedStage(
        stage=stage,
        sources=sources,
        model=model,
        task=task,
        text=getattr(stage, "text", None) or kept.text or recipe.text,
        transform=getattr(stage, "transform", None) or kept.transform,
    )


def resolve_model(recipe: Spec | None, changes: Spec | None, source: Spec | None, inside: bool) -> Spec | None:
    """Returns the model of a stage; None if neither recipe, stage nor source names one.

    Args:
        changes: the stage's ``model``; without ``name`` its keys change the model that the stage starts from.
        source: the model of the first source that has one, or None.
    """
    base = (recipe if source is None else source) or {}
    if source is not None and recipe is not None and not inside:
        base = {**source, **recipe} if recipe.get("name") == source.get("name") else recipe
    changes = changes or {}
    same = changes.get("name", base.get("name")) == base.get("name")
    return {**(base if same else {}), **changes} or None


def _first_kept(recipe: Recipe, stage: Stage, sources: tuple[str, ...], read: ReadKept) -> tuple[str, Kept]:
    for name in sources:
        kept = read(name)
        before = recipe.stages.get(name)
        if kept is None and isinstance(before, Training) and before is not stage:
            will = resolve(recipe, before, read)
            kept = Kept(will.model, will.task, will.text, will.transform)
        elif kept is None and isinstance(before, Average) and before is not stage:
            kept = _first_kept(recipe, before, tuple(before.source), read)[1]
        if kept is not None:
            return name, kept
    return "", Kept()
