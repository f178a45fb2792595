"""Opens the files of weights that stages name."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from vlcli.builders.context import StageContext
from vlcli.builders.training import read_source
from vlcli.engine.bundle import find_bundle
from vlcli.errors import DataError, Problem
from vlcli.nn.weights import WEIGHT_FILES, read_states
from vlcli.recipe.components import of_recipe, of_stage
from vlcli.recipe.schema import Training
from vlcli.recipe.wiring import FILES, find_below, find_place
from vlcli.recipe.yaml import Path_, dotted

# Kinds of components whose parameters may name weights.
_HOLDERS = ("extractors", "models", "objectives")
_SUFFIXES = {*FILES, ".pkl"} - {".h5"}


def unreadable(context: StageContext) -> list[Problem]:
    """Returns a fault for each file of weights of a stage that cannot be read; absent ones are reported elsewhere."""
    stage, problems = context.config, []
    for word in getattr(stage, "source", []):
        path = None if word in context.recipe.stages or word.endswith(".h5") else find_place(word, context.root)
        holds = path is not None and (isinstance(stage, Training) or find_bundle(path) is not None)
        if holds and (fault := _fault(read_source, path)):
            problems.append(replace(fault, key=f"stages.{context.name}.from"))
    uses = [*of_stage(context.name, stage), *(of_recipe(context.recipe) if isinstance(stage, Training) else ())]
    named = [place for use in uses if use.kind in _HOLDERS for place in _named(use.spec, use.path, context.root)]
    for key, file in dict.fromkeys(named):
        if fault := _fault(read_states, file):
            problems.append(replace(fault, key=dotted(key)))
    return problems


def _fault(read: Callable[[Any], object], path: Path | None) -> Problem | None:
    try:
        read(path)
    except DataError as error:
        return Problem.of("", error)
    return None


def _named(value: Any, key: Path_, root: Path) -> Iterator[tuple[Path_, Path]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _named(inner, (*key, name), root)
    elif isinstance(value, str):
        path = None
        with suppress(OSError, RuntimeError):  # no path: too long, or of an unknown user
            path = find_below(value, root)
        if path is not None and path.is_dir():
            yield from ((key, path / name) for name in WEIGHT_FILES if (path / name).is_file())
        elif path is not None and path.suffix in _SUFFIXES:
            yield key, path
