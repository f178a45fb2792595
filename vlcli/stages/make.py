"""Generates a world, the data root of stages that name this one in ``root``."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from vlcli import registry
from vlcli.builders.context import StageContext, StageResult
from vlcli.errors import ComponentError, Problem, RecipeError, VlcliError
from vlcli.recipe.schema import Make
from vlcli.recipe.wiring import WORLD

if TYPE_CHECKING:
    from vlcli.data.world import World


def run(context: StageContext) -> StageResult:
    """Generates the world that the stage names into ``world/``."""
    config = context.section(Make)
    workers = config.threads or min(4, os.cpu_count() or 1)
    target = context.folder / WORLD
    counts = world_config(config.world, context.name).make(target, context.progress, workers)
    return StageResult(
        metrics={name: float(count) for name, count in counts.items()},
        files={"root": WORLD},
        notes=[f"the data root is {target}"],
    )


def world_config(world: dict[str, Any], stage: str) -> World:
    """Returns the world that a recipe describes, checked."""
    if problems := check(world, f"stages.{stage}.world"):
        raise RecipeError(problems)
    options = {key: value for key, value in world.items() if key != "name"}
    config: World = TypeAdapter(registry.load("worlds", world["name"])).validate_python(options)
    return config


def check(world: dict[str, Any], key: str) -> list[Problem]:
    """Returns every fault of a recipe's ``world``."""
    try:
        target: Any = registry.load("worlds", world["name"])
    except ComponentError as error:
        return [Problem.of(f"{key}.name", error)]
    known = [field.name for field in dataclasses.fields(target) if field.name != "name"]
    unknown = [name for name in world if name not in ("name", *known)]
    problems = [Problem(f"{key}.{name}", f"unknown key {name!r}", expected=", ".join(known)) for name in unknown]
    try:
        TypeAdapter(target).validate_python({name: value for name, value in world.items() if name in known})
    except ValidationError as error:
        for fault in error.errors():
            name, got = fault["loc"][0] if fault["loc"] else "", repr(fault["input"])
            problems.append(Problem(f"{key}.{name}", "this value does not fit", got=got, expected=fault["msg"]))
    except VlcliError as error:
        problems.append(Problem(key, error.what, got=error.got, expected=error.expected, hint=error.hint))
    return problems
