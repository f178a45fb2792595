"""Checks a recipe against its schema; reports every fault at once, each with its line."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from vlcli.errors import Problem, RecipeError, did_you_mean, shown
from vlcli.recipe.components import CHANGED, Use, of_recipe, of_stage
from vlcli.recipe.patterns import Searcher
from vlcli.recipe.schema import STAGES, ObjectiveOptions, ReaderOptions, Recipe, Stage, Training, kind_of
from vlcli.recipe.wiring import names_a_place
from vlcli.recipe.yaml import Document, Path_, dotted, section
from vlcli.registry.bounds import MOST_INT, numbers_in

_STAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")
_MOST_NAME = 100  # the longest name of a recipe or a stage, which is part of a folder's name
# The most stages: each is checked against all before it
MOST_STAGES = 1000


def check_structure(document: Document) -> tuple[Recipe | None, list[Problem]]:
    """Returns the recipe with its stages typed by kind, and every fault of structure and wiring."""
    written, stages = document.value.get("stages"), section(document.value, "stages")
    if len(stages) > MOST_STAGES:
        got, expected = f"{len(stages):,} stages", f"at most {MOST_STAGES:,}"
        return None, [document.fault(("stages",), "too many stages", got, expected, "split the recipe into several")]
    recipe, problems = _validate(Recipe, {**document.value, "stages": stages}, (), document)
    if not isinstance(written, dict):
        got = "nothing" if written is None else type(written).__name__
        problems.append(document.fault(("stages",), "a mapping of stages must be given", got, "name: {kind: ...}"))
    typed: dict[str, Stage] = {}
    for name, stage in stages.items():
        typed_stage, faults = _stage(name, stage, document)
        problems += faults
        if typed_stage is not None:
            typed[name] = typed_stage
            problems += [fault for use in of_stage(name, typed_stage) for fault in _options(use, document)]
            problems += _pattern_faults(name, typed_stage, document)
    problems += [fault for use in of_recipe(recipe) for fault in _options(use, document)] if recipe else []
    problems += _wiring(list(stages), typed, document)
    if recipe is None or problems:
        return None, sorted(problems, key=by_place)
    return recipe.model_copy(update={"stages": typed}), []


def _stage(name: str, raw: Any, document: Document) -> tuple[Stage | None, list[Problem]]:
    path: Path_ = ("stages", name)
    if not isinstance(raw, dict):
        return None, [document.fault(path, "a stage is a mapping", repr(raw), "keys such as kind, data, from")]
    if not _STAGE_NAME.match(name) or len(name) > _MOST_NAME:
        expected = f"letters, digits, _ and -, {_MOST_NAME} at most"
        return None, [document.fault(path, "this name cannot be a folder", shown(name), expected)]
    kind = kind_of(name, raw)
    if kind not in STAGES:
        said = str(raw.get("kind", ""))
        what = f"there is no stage kind {said!r}" if said else f"'kind' must be given: {name!r} is not one"
        hint = did_you_mean(said or name, STAGES)
        return None, [document.fault((*path, "kind"), what, said, ", ".join(STAGES), hint)]
    return _validate(STAGES[kind], {**raw, "kind": kind}, path, document)


def typed(model: type[BaseModel], document: Document) -> tuple[Any, list[Problem]]:
    """Returns a document (claims, say) as ``model``, or None and every fault with its line."""
    return _validate(model, document.value, (), document)


def _validate(model: type[BaseModel], raw: Any, path: Path_, document: Document) -> tuple[Any, list[Problem]]:
    try:
        return model.model_validate(raw), []
    except ValidationError as error:
        faults = {_walk(raw, fault): fault for fault in reversed(error.errors())}  # of several at one key the first
    # A choice such as `str | mapping` fails once per branch: what lies deepest is what the writer meant.
    deepest = [at for at in faults if not any(o != at and o[: len(at)] == at for o in faults)]
    return None, [_problem(model, at, faults[at], path, document) for at in reversed(deepest)]


_OPTION_MODELS: dict[str, type[BaseModel]] = {"objectives": ObjectiveOptions, "datasets": ReaderOptions}


def _options(use: Use, document: Document) -> Iterator[Problem]:
    if CHANGED not in use.options and use.kind in _OPTION_MODELS:
        options = {key: value for key, value in use.options.items() if key != "as"}
        yield from _validate(_OPTION_MODELS[use.kind], options, use.path, document)[1]
    for key, value in use.spec.items():
        if not all(math.isfinite(number) and abs(number) <= MOST_INT for number in numbers_in(value)):
            yield document.fault((*use.path, key), "this value does not fit", shown(value), _FINITE)


def _pattern_faults(name: str, stage: Stage, document: Document) -> Iterator[Problem]:
    if not isinstance(stage, Training):
        return
    path: Path_ = ("stages", name)
    patterns = {(*path, key, i): text for key in _PATTERNS for i, text in enumerate(getattr(stage, key) or [])}
    patterns |= {(*path, "optimizer", "no_decay", i): text for i, text in enumerate(stage.optimizer.no_decay)}
    patterns |= {(*path, "optimizer", "groups", i, "match"): g.match for i, g in enumerate(stage.optimizer.groups)}
    for at, text in patterns.items():
        try:
            Searcher(text, dotted(at))
        except RecipeError as error:
            yield replace(error.problems[0], where=document.place(at))


_PATTERNS = ("trainable", "frozen", "allow_unmatched")
# Names in other toolkits of a key whose nearest spelling here is another key.
_MEANT = dict.fromkeys(("checkpoint_every", "checkpoint_steps", "save_steps", "ckpt_every"), "save_every")
_FINITE = "numbers that are finite and fit 64 bits"


def _walk(raw: Any, fault: Any) -> Path_:
    # The parts of a pydantic location that are keys of the recipe, without labels of union branches.
    at: list[str | int] = []
    value, loc = raw, fault["loc"]
    names_key = fault["type"] in ("missing", "extra_forbidden")
    for index, part in enumerate(loc):
        if (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        ):
            value = value[part]
        elif index < len(loc) - 1 or not names_key:
            continue
        at.append(part)
    return tuple(at)


def _problem(model: type[BaseModel], at: Path_, fault: Any, path: Path_, document: Document) -> Problem:
    full = (*path, *at)
    if fault["type"] == "extra_forbidden":
        known = _keys(model, at[:-1])
        meant = _MEANT.get(str(at[-1]))
        hint = did_you_mean(meant or str(at[-1]), known, cutoff=1.0 if meant else 0.6)
        return document.fault(full, f"unknown key {at[-1]!r}", expected=", ".join(known), hint=hint)
    if fault["type"] == "missing":
        return document.fault(full, f"{at[-1]!r} must be given" if at else "must be given")
    if fault["input"] is None:
        return document.fault(full, "this key has no value", hint="write a value after the colon or leave the key out")
    section = f"keys and values; keys are {', '.join(_keys(model, at))}" if fault["type"] == "model_type" else ""
    message = section or fault["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return document.fault(full, "this value does not fit", shown(fault["input"]), message)


def _keys(model: Any, at: Path_) -> list[str]:
    for part in (part for part in at if isinstance(part, str)):
        info = next((f for n, f in model.model_fields.items() if part in (n, f.alias)), None)
        model = _section(info.annotation) if info else None
        if model is None:
            return []
    return sorted(info.alias or name for name, info in model.model_fields.items())


def _section(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_section, getattr(annotation, "__args__", ()))), None)


def _wiring(names: list[str], typed: dict[str, Stage], document: Document) -> Iterator[Problem]:
    for name, stage in typed.items():
        earlier = names[: names.index(name)]
        words = [("from", one) for one in stage.source]
        words += [("features", one) for one in getattr(stage, "features", [])]
        for field, value in words:
            if value in earlier or names_a_place(value):
                continue
            what = f"the stage {value!r} does not come before this one"
            what = what if value in names else "there is no such stage, file or folder"
            expected = ", ".join(earlier) or "there is no earlier stage"
            hint = "" if value in names else did_you_mean(value, earlier)
            yield document.fault(("stages", name, field), what, value, expected, hint)
        fitted = getattr(stage, "fit", [])  # without a model
        if stage.needs_source and not stage.source and not fitted:
            what = f"{stage.kind} needs 'from': the stage (or folder) whose model it takes"
            expected = ", ".join(earlier) or "an earlier stage"
            expected += "; or `fit: DATA` for a task without a model" if stage.kind == "evaluate" else ""
            yield document.fault(("stages", name, "from"), what, expected=expected)
    for label, name in section(document.value, "table", "rows").items():
        if isinstance(name, str) and name not in names:
            yield document.fault(("table", "rows", label), "there is no such stage", name, ", ".join(names))


def by_place(problem: Problem) -> tuple[str, int, str]:
    """Sorts faults by file, line and key."""
    file, _, line = problem.where.rpartition(":")
    return file, int(line) if line.isdigit() else 0, problem.key
