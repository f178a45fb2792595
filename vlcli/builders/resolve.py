"""Which model a training stage builds: one rule for the preflight, the count and the run.

A stage starts from the model of its source if that source is a stage of the same recipe, else from the recipe's model,
else from the model of a source outside the recipe. A source outside the recipe also supplies the keys that the recipe's
model of the same name leaves out. The keys of the stage's ``model`` change the result; if they name another model, they
alone are used.
"""

from __future__ import annotations

from vlcli.builders.context import StageContext
from vlcli.engine.bundle import Bundle, find_bundle, read_bundle
from vlcli.errors import VlcliError
from vlcli.recipe.schema import Average, Stage, Training
from vlcli.recipe.wiring import find_place
from vlcli.registry import Spec, as_spec
from vlcli.registry.contract import unforeseen
from vlcli.tasks.base import Task


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


def usual_objectives(task: Task | None, spec: Spec | None) -> list[Spec]:
    """The objectives of a task that ``spec`` names; none where there is no task.

    Raises:
        ComponentError: the task does not say them.
    """
    if task is None or spec is None:
        return []
    try:
        return [as_spec(one) for one in task.objectives()]
    except VlcliError:
        raise
    except Exception as error:
        raise unforeseen(error, "tasks", spec["name"], type(task)) from error


def usual_data(task: Task | None, spec: Spec | None) -> list[Spec]:
    """The training data of a task that ``spec`` names; none where there is no task.

    Raises:
        ComponentError: the task does not say them.
    """
    if task is None or spec is None:
        return []
    try:
        return [{"split": "train", **as_spec(task.dataset())}]
    except VlcliError:
        raise
    except Exception as error:
        raise unforeseen(error, "tasks", spec["name"], type(task)) from error


def planned_model(context: StageContext, config: Training) -> Spec | None:
    """The model that a stage will have, determined before its sources have been trained."""
    source, inside = _planned_source(context, config)
    return resolve_model(context.recipe.model, config.model, source, inside)


def choose_model(context: StageContext, config: Training, bundle: Bundle | None) -> Spec | None:
    """The model of a stage whose sources exist; ``bundle`` is the first source that is a bundle."""
    inside = bundle is not None and any(name in context.recipe.stages for name in _first_bundle(context, config))
    return resolve_model(context.recipe.model, config.model, None if bundle is None else bundle.model_spec, inside)


def _first_bundle(context: StageContext, config: Training) -> list[str]:
    """The name of the first source that is a bundle, in a list; empty where none is."""
    return [name for name in config.source if find_bundle(context.resolve(name)) is not None][:1]


def _planned_source(context: StageContext, config: Stage) -> tuple[Spec | None, bool]:
    """The model of the first source that will have one, and whether it is a stage of the recipe."""
    for name in config.source:
        before = context.recipe.stages.get(name)
        if isinstance(before, Training) and before is not config:
            return planned_model(context, before), True
        if isinstance(before, Average):
            return _planned_source(context, before)[0], True
        place = None if before is not None else find_place(name, context.root)
        if place is not None and find_bundle(place) is not None:
            return read_bundle(place).model_spec, False
    return None, False
