"""Finds faults of a recipe's extractions before a picture is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vlcli import registry
from vlcli.errors import ComponentError, DataError, Problem, RecipeError, UsageError
from vlcli.nn.undrawn import without_memory
from vlcli.recipe.schema import Extract, Stage
from vlcli.registry import Spec

OTHER_BOXES = ("given", "detected")
"""Values of the parameter ``boxes`` of an extractor whose regions are no cells of a grid."""


def unbuildable(stages: Mapping[str, Stage], names: list[str]) -> list[Problem]:
    """Returns the extractors of the stages ``names`` whose parameters are right one by one and do not work together."""
    problems = []
    for name in names:
        stage = stages[name]
        rehearse = None
        try:
            if isinstance(stage, Extract):
                rehearse = getattr(registry.load("extractors", stage.extractor["name"]), "rehearse", None)
            if isinstance(stage, Extract) and rehearse is not None:
                _rehearse(rehearse, _parameters(stage.extractor))
        except (ComponentError, UsageError, DataError) as error:
            key = f"stages.{name}.extractor"
            problems.append(Problem(key, error.what, "", error.got, error.expected, error.hint, error.exit_code))
    return problems


def _rehearse(rehearse: Any, parameters: dict[str, Any]) -> None:
    try:
        without_memory(lambda: rehearse(parameters))
    except (ComponentError, UsageError, DataError):
        rehearse(parameters)  # for real: what fails only without memory is no fault


def refuse_other_grid(stages: Mapping[str, Stage], stores: list[str], grid: tuple[int, int] | None) -> None:
    """Refuses extractions that will not hold the cells of the grid that a model reads.

    Args:
        stages: of the recipe.
        stores: the extract stages whose regions the model reads; other names are passed over.
        grid: rows and columns that the model reads; None: any regions.

    Raises:
        RecipeError: the extraction is of boxes that are no grid, or of another grid. Files of boxes (``boxes`` of the
            stage) may hold a grid: that is seen when they are read.
    """
    for name in stores if grid is not None else ():
        stage = stages.get(name)
        if not isinstance(stage, Extract) or stage.boxes:
            continue
        parameters = _parameters(stage.extractor)
        boxes, cells = parameters.get("boxes"), parameters.get("grid")
        other = boxes == "grid" and cells is not None and tuple(cells) != grid
        if boxes in OTHER_BOXES or other:
            rows, columns = grid or (0, 0)
            key, got = ("grid", list(cells or ())) if other else ("boxes", boxes)
            problem = Problem(
                f"stages.{name}.extractor",
                f"the model reads a grid of features, and this stage will hold something else ({key})",
                got=f"{key}: {got}",
                expected=f"{rows} x {columns} cells",
                hint=f"extractor: {{..., boxes: grid, grid: [{rows}, {columns}]}}, or name the same grid in the model",
            )
            raise RecipeError([problem])


def _parameters(spec: Spec) -> dict[str, Any]:
    known = registry.parameters(registry.load("extractors", spec["name"]))
    defaults = {name: one.default for name, one in known.items() if not one.required}
    return defaults | {key: value for key, value in spec.items() if key != "name"}
