"""What a stage will do, decided in one place: model, task, objectives, data, text, transform and sources.

The stage's own words come first, then those of the trained model that it starts from, then the recipe's. Validation,
keys, the preflight, the count, the drawings and the run itself ask here, so that all of them have the same answer.

A stage starts from the first of its sources that is a trained model. Its *model* is that of the source where the source
is a stage of the same recipe, else the recipe's, else that of a source outside the recipe. A source outside the recipe
also supplies the keys that the recipe's model of the same name leaves out. The keys of the stage's ``model`` change the
result; if they name another model, they alone are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vlcli import registry
from vlcli.errors import VlcliError
from vlcli.recipe.schema import Average, Reading, Recipe, Stage, TextOptions, Training
from vlcli.registry.contract import CONTRACTS, overrides, unforeseen
from vlcli.registry.schema import Spec, as_spec


@dataclass(frozen=True)
class Kept:
    """What a trained model hands to a stage that starts from it: the specs in its bundle.

    Attributes:
        model: what builds it.
        task: what it was fine-tuned on, or None.
        text: how its sentences became ids; None where it reads no text.
        transform: how its pictures became pixels, or None.
    """

    model: Spec | None = None
    task: Spec | None = None
    text: TextOptions | None = None
    transform: Spec | None = None


ReadKept = Callable[[str], Kept | None]
"""Reads the trained model that a word of ``from`` leads to; None where there is none (yet)."""


@dataclass(frozen=True)
class ResolvedStage:
    """What one stage will do.

    Attributes:
        stage: its section of the recipe.
        sources: the words of ``from`` that may give weights; stages of features or data and stores are left out.
        model: what builds its model; None where nothing names one.
        task: its task; None where it has none. A training stage has only the task that it names itself.
        text: how sentences become ids.
        transform: how pictures become pixels, or None.
    """

    stage: Stage
    sources: tuple[str, ...]
    model: Spec | None
    task: Spec | None
    text: TextOptions
    transform: Spec | None

    @cached_property
    def built_task(self) -> Any:
        """The task, built (a ``vlcli.tasks.base.Task``); None where there is none."""
        return None if self.task is None else registry.build("tasks", self.task)

    @cached_property
    def objectives(self) -> list[Spec]:
        """A training stage's objectives, else those of its task.

        Raises:
            ComponentError: the task fails to say them.
        """
        if not isinstance(self.stage, Training):
            return []
        return list(self.stage.objectives or self._asked(lambda task: [as_spec(one) for one in task.objectives()]))

    @cached_property
    def data(self) -> list[Spec]:
        """The stage's data sets, else its task's own; for stages that read with a trained model, with their split.

        Raises:
            ComponentError: the task fails to say them.
        """
        named = [dict(as_spec(one)) for one in getattr(self.stage, "data", [])]
        if isinstance(self.stage, Training):
            return named or [{"split": "train", **one} for one in self._own_data()]
        if not isinstance(self.stage, Reading):
            return named
        return [self._with_split(one) for one in named or self._own_data()]

    def _own_data(self) -> list[Spec]:
        if self.built_task is None or not _overrides_dataset(self.built_task):
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
        """What the task answers, nothing without one; a fault of its code is told with its author's line."""
        if self.task is None:
            return []
        try:
            return ask(self.built_task)
        except VlcliError:
            raise
        except Exception as error:
            raise unforeseen(error, "tasks", self.task["name"], type(self.built_task)) from error


def nothing_kept(_: str) -> None:
    """For :func:`resolve` where the recipe alone decides: no source outside it is read."""


def resolve(recipe: Recipe, stage: Stage, read: ReadKept = nothing_kept) -> ResolvedStage:
    """Decide what a stage of a recipe will do.

    Args:
        recipe: checked.
        stage: one of its stages.
        read: reads trained models that exist; stages of the recipe that do not exist yet are resolved themselves.
    """
    sources = tuple(name for name in stage.source if _may_give_weights(recipe, name))
    name, kept = _first_kept(recipe, stage, sources, read)
    own = getattr(stage, "model", None)
    model = resolve_model(recipe.model, own, kept.model, inside=name in recipe.stages)
    return ResolvedStage(
        stage=stage,
        sources=sources,
        model=model,
        task=_task(stage, kept),
        text=getattr(stage, "text", None) or kept.text or recipe.text,
        transform=getattr(stage, "transform", None) or kept.transform,
    )


def resolve_model(recipe: Spec | None, own: Spec | None, source: Spec | None, inside: bool) -> Spec | None:
    """The model of a stage.

    Args:
        recipe: the recipe's model.
        own: the stage's ``model``; without ``name`` its keys change the model that the stage starts from.
        source: the model of the first source that has one; None where none has.
        inside: whether that source is a stage of the recipe.

    Returns:
        The model's spec; None where neither recipe, stage nor source names a model.
    """
    base = recipe if source is None else source
    if source is not None and recipe is not None and not inside:
        base = {**source, **recipe} if recipe.get("name") == source.get("name") else recipe
    changes = dict(own or {})
    if changes.get("name", (base or {}).get("name")) != (base or {}).get("name"):
        return changes
    return {**(base or {}), **changes} or None


def named_model(recipe: Recipe, stage: Stage) -> Spec | None:
    """The model that recipe and stage name, whatever the stage starts from; None where neither names one.

    A stage's key holds this one: what its sources add is in their fingerprints.
    """
    own = getattr(stage, "model", None)
    if own is None or recipe.model is None or own.get("name", recipe.model["name"]) != recipe.model["name"]:
        return own if own is not None else recipe.model
    return {**recipe.model, **own}


def _may_give_weights(recipe: Recipe, name: str) -> bool:
    """Whether a word of ``from`` may give weights (features and data come by other ways)."""
    stage = recipe.stages.get(name)
    return stage.gives_weights if stage is not None else not name.endswith(".h5")


def _first_kept(recipe: Recipe, stage: Stage, sources: tuple[str, ...], read: ReadKept) -> tuple[str, Kept]:
    """The first source that is (or will be) a trained model, and what it keeps."""
    for name in sources:
        kept = read(name)
        before = recipe.stages.get(name)
        if kept is None and before is not None and before is not stage:
            kept = _will_keep(recipe, before, read)
        if kept is not None:
            return name, kept
    return "", Kept()


def _will_keep(recipe: Recipe, stage: Stage, read: ReadKept) -> Kept | None:
    """What the bundle of a stage will keep that has not been made; None where it makes none."""
    if isinstance(stage, Training):
        made = resolve(recipe, stage, read)
        return Kept(made.model, made.task, made.text, made.transform)
    if isinstance(stage, Average):
        return _first_kept(recipe, stage, tuple(stage.source), read)[1]
    return None


def _task(stage: Stage, kept: Kept) -> Spec | None:
    """A stage that reads with a trained model has that model's task, and its options where it names the task alone."""
    own: Spec | None = getattr(stage, "task", None)
    if not isinstance(stage, Reading) or kept.task is None:
        return own
    same = own is None or (set(own) == {"name"} and as_spec(kept.task)["name"] == own["name"])
    return kept.task if same else own


def _overrides_dataset(task: Any) -> bool:
    """Whether a task has a data set of its own, without which the stage names one."""
    return bool(task.usual_data) or overrides(type(task), "dataset", CONTRACTS["tasks"].bases)
