"""Checks extractions and weights that a stage starts from by names and shapes, before a run begins."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from vlcli import registry
from vlcli.builders.context import StageContext
from vlcli.builders.resolve import kept_by
from vlcli.engine.bundle import find_bundle, read_bundle
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.engine.weights import WeightLoader
from vlcli.errors import ComponentError, DataError, Problem, RecipeError, UsageError, VlcliError
from vlcli.nn.fake import without_memory
from vlcli.nn.model import DataSpec
from vlcli.recipe.resolve import resolve
from vlcli.recipe.schema import Average, Extract, Stage, Training
from vlcli.recipe.wiring import find_place

Described = tuple[dict[str, Any], list[Any]]
"""The specs of a model and of its objectives."""


def refuse_other_sizes(context: StageContext, make: Callable[[], TrainingModule], data_spec: DataSpec) -> None:
    """Refuses to start from weights of other shapes.

    Sources that are no models of vlcli, or that do not exist yet, are not checked.

    Args:
        make: builds the stage's module with ``data_spec`` on the meta device; called if there are sources to compare.

    Raises:
        DataError: weights of the model are not in its sources.
    """
    config, stages = context.section(Training), context.recipe.stages
    # stages that extract or make data give no weights, nor do stores
    names = [one for one in config.source if (stages[one].gives_weights if one in stages else not one.endswith(".h5"))]
    states = [state for name in names if (state := _state(context, name, data_spec)) is not None]
    if not names or len(states) < len(names):
        return
    loader = WeightLoader(make(), list(config.allow_unmatched))
    try:
        for name, state in zip(names, states, strict=True):
            loader.add(state, name, ours=True)
    except VlcliError:
        raise
    except Exception:  # a model's `adapt` that reads values, of which there are none yet
        return
    loader.finish()


def _state(context: StageContext, name: str, data_spec: DataSpec) -> dict[str, Tensor] | None:
    # without values; None where the model cannot be described or built
    try:
        described = next(_described(context, name), None)
        if described is None or not described[0].get("name"):
            return None
        module = without_memory(lambda: build_training_module(*described, data_spec))
    except Exception:  # a fault of the source: it is found where the source itself is checked
        return None
    return dict(module.state_dict())


def _described(context: StageContext, name: str) -> Iterator[Described]:
    stage = context.recipe.stages.get(name)
    if isinstance(stage, Training):
        resolved = resolve(context.recipe, stage, lambda word: kept_by(context, word))
        yield resolved.model or {}, resolved.objectives
    elif isinstance(stage, Average):
        yield from (described for word in stage.source for described in _described(context, word))
    elif stage is None:
        path = find_place(name, context.root)
        if path is not None and find_bundle(path) is not None:
            bundle = read_bundle(path)
            yield bundle.model_spec, bundle.objectives_specs


# Values of the parameter ``boxes`` of an extractor whose regions are no cells of a grid
OTHER_BOXES = ("given", "detected")


def unbuildable(stages: Mapping[str, Stage], names: list[str]) -> list[Problem]:
    """Returns a fault for each extractor of the stages ``names`` whose parameters do not fit one another."""
    problems = []
    for name in names:
        stage = stages[name]
        if not isinstance(stage, Extract):
            continue
        try:
            rehearse = getattr(registry.load("extractors", stage.extractor["name"]), "rehearse", None)
            if rehearse is not None:
                _rehearse(rehearse, _parameters(stage.extractor))
        except (ComponentError, UsageError, DataError) as error:
            problems.append(Problem.of(f"stages.{name}.extractor", error))
    return problems


def _rehearse(rehearse: Any, parameters: dict[str, Any]) -> None:
    try:
        without_memory(lambda: rehearse(parameters))
    except (ComponentError, UsageError, DataError):
        rehearse(parameters)  # for real: what fails only without memory is no fault


def refuse_other_grid(stages: Mapping[str, Stage], stores: list[str], grid: tuple[int, int] | None) -> None:
    """Refuses extractions of other regions than the grid that a model reads.

    Args:
        stores: the extract stages whose regions the model reads; other names are passed over.
        grid: rows and columns that the model reads; None: any regions.

    Raises:
        RecipeError: the boxes are no grid, or another one. Files of boxes (``boxes`` of the stage) are checked when
            they are read.
    """
    if grid is None:
        return
    rows, columns = grid
    for name in stores:
        stage = stages.get(name)
        if not isinstance(stage, Extract) or stage.boxes:
            continue
        parameters = _parameters(stage.extractor)
        boxes, cells = parameters.get("boxes"), parameters.get("grid")
        other = boxes == "grid" and cells is not None and tuple(cells) != grid
        if boxes in OTHER_BOXES or other:
            key, got = ("grid", list(cells or ())) if other else ("boxes", boxes)
            what = f"the model reads a grid of features, and this stage will hold something else ({key})"
            hint = f"extractor: {{..., boxes: grid, grid: [{rows}, {columns}]}}, or name the same grid in the model"
            place, expected = f"stages.{name}.extractor", f"{rows} x {columns} cells"
            raise RecipeError([Problem(place, what, got=f"{key}: {got}", expected=expected, hint=hint)])


def _parameters(spec: registry.Spec) -> dict[str, Any]:
    known = registry.parameters(registry.load("extractors", spec["name"]))
    defaults = {name: one.default for name, one in known.items() if not one.required}
    return defaults | {key: value for key, value in spec.items() if key != "name"}
