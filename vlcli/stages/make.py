"""Make: a generated world becomes the data root of the stages that name this one in ``root``."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from vlcli import registry
from vlcli.builders.context import StageContext, StageResult
from vlcli.errors import ComponentError, Problem, RecipeError, VlcliError
from vlcli.recipe.schema import Make
from vlcli.recipe.wiring import WORLD

if TYPE_CHECKING:
    from vlcli.data.world import World


def run(context: StageContext) -> StageResult:
    """Generate the world that the stage names into ``world/``."""
    config = context.config
    assert isinstance(config, Make)
    workers = config.threads or min(4, os.cpu_count() or 1)
    target = context.folder / WORLD
    counts = world_config(config.world, context.name).make(target, context.progress, workers)
    return StageResult(
        metrics={name: float(count) for name, count in counts.items()},
        files={"root": WORLD},
        notes=[f"the data root is {target}"],
    )


def world_config(world: dict[str, Any], stage: str) -> World:
    """The world that a recipe describes, checked.

    Raises:
        RecipeError: an unknown world, an unknown key or a value that does not fit.
    """
    problems = check(world, f"stages.{stage}.world")
    if problems:
        raise RecipeError(problems)
    made: World = _adapter(registry.load("worlds", world["name"])).validate_python(
        {k: v for k, v in world.items() if k != "name"}
    )
    return made


def check(world: dict[str, Any], key: str) -> list[Problem]:
    """Every fault of a recipe's ``world``."""
    try:
        target: Any = registry.load("worlds", world["name"])
    except ComponentError as error:
        return [Problem(f"{key}.name", error.what, got=error.got, expected=error.expected, hint=error.hint, code=4)]
    given = {name: value for name, value in world.items() if name != "name"}
    known = [field.name for field in dataclasses.fields(target)]
    problems = [
        Problem(f"{key}.{name}", f"unknown key {name!r}", expected=", ".join(known))
        for name in given
        if name not in known
    ]
    try:
        _adapter(target).validate_python({name: value for name, value in given.items() if name in known})
    except ValidationError as error:
        problems += [
            Problem(
                f"{key}.{fault['loc'][0] if fault['loc'] else ''}",
                "this value does not fit",
                got=repr(fault["input"]),
                expected=fault["msg"],
            )
            for fault in error.errors()
        ]
    except VlcliError as error:
        problems.append(Problem(key, error.what, got=error.got, expected=error.expected, hint=error.hint))
    return problems


def _adapter(target: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(target, config=ConfigDict(extra="forbid") if not dataclasses.is_dataclass(target) else None)
