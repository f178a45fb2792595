"""Loading, checking and building components; a broken plugin stops nobody else."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import ValidationError

from vlcli.errors import ComponentError, Problem, shown
from vlcli.registry.bounds import has_bounds, number_fault
from vlcli.registry.contract import blame, fault, incomplete, origin
from vlcli.registry.entries import FILES, Entry, entries, find
from vlcli.registry.public import imports_of, warn_of_private_imports
from vlcli.registry.renames import former_names
from vlcli.registry.schema import Parameter, as_spec, documentation, parameters, validator

TRUSTED = ("vlcli", "session")
"""Distributions whose private imports nobody is warned of: vlcli itself, and what a test or notebook registers."""


@dataclass(frozen=True)
class Broken:
    """Why a component cannot be used.

    Attributes:
        entry: which one.
        cause: one line.
        place: ``file:line`` of its author's class, or of the line that fails; empty where it is not known.
    """

    entry: Entry
    cause: str
    place: str = ""


def load(kind: str, name: str) -> Any:
    """The component ``name`` of ``kind``; a package's private imports are warned of when its first one is loaded.

    Raises:
        ComponentError: unknown, ambiguous, its import fails (the cause in one line), or it lacks the base class or a
            method of its kind (asked of packages and plugin files, not of what a session registers).
    """
    entry = find(kind, name)
    target = _imported(entry)
    if entry.distribution != "session" and (wrong := fault(kind, target)) and not _lacking(target, name, ""):
        where = origin(target) or f"{entry.distribution} {entry.version} ({entry.value})"
        raise incomplete(kind, name, wrong, where, entry.distribution)
    if entry.distribution not in TRUSTED:
        warn_of_private_imports(entry.value)
    return target


def _imported(entry: Entry) -> Any:
    """The class or function of an entry, whatever it lacks."""
    try:
        return _import(entry.value) if entry.loaded is None else entry.loaded
    except ComponentError:
        raise
    except (Exception, SystemExit) as error:  # a module that calls sys.exit is broken too
        place = blame(error)
        raise ComponentError(
            f"The {entry.kind[:-1]} {entry.name!r} cannot be imported.",
            where=f"{entry.distribution} {entry.version} ({entry.value})" + (f", {place}" if place else ""),
            got=_cause(error),
            hint=getattr(error, "hint", "") or f"update, reinstall or remove {entry.distribution}",
        ) from error


def private_imports_of(entry: Entry) -> list[str]:
    """The private names of vlcli that a component's package imports, each with its remedy; after it was loaded."""
    if entry.distribution in TRUSTED or entry.kind in FILES:
        return []
    return [str(found) for found in imports_of(entry.value.partition(":")[0].partition(".")[0])]


def status(kind: str | None = None) -> list[Broken]:
    """Import every component of ``kind`` and tell which are broken (``ls --check``, ``doctor``)."""
    broken = []
    for entry in entries(kind):
        if entry.kind in FILES:
            continue
        try:
            target = _import(entry.value) if entry.loaded is None else entry.loaded
        except (Exception, SystemExit) as error:  # a module that calls sys.exit is broken too
            broken.append(Broken(entry, _cause(error), blame(error)))
            continue
        if wrong := fault(entry.kind, target):
            broken.append(Broken(entry, wrong, origin(target)))
    return broken


def lacking(kind: str, name: str) -> str:
    """What a component that can be imported lacks, and the command that installs it, in a line; empty where nothing."""
    try:
        problems = _lacking(load(kind, name), name, "")
    except ComponentError:
        return ""
    return f"{problems[0].got}; {problems[0].hint}".removesuffix("; ") if problems else ""


def lacking_early(kind: str, value: Any, key: str = "") -> list[Problem]:
    """Packages that a component needs and that are not installed, as far as the metadata tell.

    Nothing is imported, except, where one is missing, the component itself: it knows the command that installs it.

    Args:
        kind: registry kind.
        value: what the recipe says: a name or a mapping with ``name``.
        key: where in the recipe it stands (dotted).

    Raises:
        ComponentError: unknown or ambiguous.
    """
    name = as_spec(value)["name"]
    entry = find(kind, name)
    if all(importlib.util.find_spec(package) is not None for package in entry.needs):
        return []
    try:
        return _lacking(load(kind, name), name, key)
    except ComponentError:  # what else is wrong with it, the deep validation tells
        return [_lack(name, list(entry.needs), key, "")]


def check(kind: str, value: Any, key: str = "") -> list[Problem]:
    """Every fault of a recipe's choice of a component: name, import, unknown keys, types, nested components.

    Args:
        kind: registry kind.
        value: what the recipe says: a name or a mapping with ``name``.
        key: where in the recipe it stands (dotted).
    """
    try:
        spec = as_spec(value)
        target = load(kind, spec["name"])
        known = parameters(target)
    except ComponentError as error:
        return [Problem(key, error.what, got=error.got, expected=error.expected, hint=error.hint, code=4)]
    given = {name: item for name, item in spec.items() if name != "name"}
    renamed = former_names(kind, spec, key)
    given = {name: item for name, item in given.items() if f"{key}.{name}" not in {fault.key for fault in renamed}}
    problems = [*_lacking(target, spec["name"], key), *renamed, *_value_problems(target, known, given, key)]
    for name, item in given.items():
        if name in known and known[name].kind:
            problems += _nested(known[name], item, f"{key}.{name}")
    return problems


def build(kind: str, value: Any, *context: Any, **extra: Any) -> Any:
    """Make the component a recipe chose.

    Args:
        kind: registry kind.
        value: a name or a mapping with ``name`` and parameters.
        context: positional arguments, those the kind's base class documents.
        extra: keyword arguments the toolkit adds.

    Raises:
        ComponentError: unknown name, unknown parameter or a value of a wrong type.
    """
    spec = as_spec(value)
    target = load(kind, spec["name"])
    problems = check(kind, spec, f"{kind[:-1]} {spec['name']}")
    if problems:
        raise ComponentError(str(problems[0]))
    given = {name: item for name, item in spec.items() if name != "name"}
    values = validator(target)(**given) if parameters(target) else None
    chosen = {name: getattr(values, name) for name in given} if values is not None else {}
    made = target(*context, **chosen, **extra)
    if not inspect.isfunction(target):
        _remember(made, spec)
    return made


def describe(kind: str, name: str) -> dict[str, Any]:
    """What ``vlcli show`` tells of a component (imports it); ``broken`` is what it lacks of its kind, in words."""
    entry = find(kind, name)
    target = _imported(entry)
    text = documentation(target)
    return {
        "kind": kind,
        "name": name,
        "summary": text.split("\n", 1)[0],
        "doc": text,
        "paper": getattr(target, "paper", ""),
        "distribution": entry.distribution,
        "version": entry.version,
        "origin": origin(target),
        "broken": fault(kind, target),
        "capabilities": sorted(getattr(target, "capabilities", ())) if kind == "models" else [],
        "slots": {n: sorted(s.takes) for n, s in getattr(target, "slots", {}).items()} if kind == "models" else {},
        "requires": sorted(getattr(target, "requires", ())) if kind in ("objectives", "tasks") else [],
        "parameters": [_parameter_row(p) for p in parameters(target).values()],
    }


def _lacking(target: Any, name: str, key: str) -> list[Problem]:
    """The packages a component names in ``packages`` that are not installed, with its own ``install`` line."""
    missing = [package for package in getattr(target, "packages", ()) if importlib.util.find_spec(package) is None]
    return [_lack(name, missing, key, getattr(target, "install", ""))] if missing else []


def _lack(name: str, missing: list[str], key: str, hint: str) -> Problem:
    what = f"{name} needs packages that are not installed"
    return Problem(key, what, got=f"missing: {', '.join(missing)}", hint=hint, code=4)


def _parameter_row(parameter: Parameter) -> dict[str, Any]:
    default = None if parameter.required else parameter.default
    return {
        "name": parameter.name,
        "type": parameter.type_text,
        "required": parameter.required,
        "default": default
        if isinstance(default, str | int | float | bool | list | dict | type(None))
        else str(default),
    }


def _remember(made: Any, spec: dict[str, Any]) -> None:
    """Keep the recipe's words on the object, so that a checkpoint can say how to build it again."""
    try:
        made.spec_in_recipe = spec
    except (AttributeError, TypeError):
        return


@cache
def _import(value: str) -> Any:
    module, _, attribute = value.partition(":")
    target: Any = importlib.import_module(module)
    for part in filter(None, attribute.split(".")):
        target = getattr(target, part)
    return target


def _cause(error: BaseException) -> str:
    first = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _value_problems(
    target: Callable[..., Any], known: dict[str, Parameter], given: dict[str, Any], key: str
) -> list[Problem]:
    problems = [_unknown_key(name, list(known), f"{key}.{name}") for name in given if name not in known]
    try:
        validator(target)(**{name: item for name, item in given.items() if name in known})
    except ValidationError as error:
        places: set[str] = set()
        for fault in error.errors():
            name = str(fault["loc"][0]) if fault["loc"] else ""
            if name in places:
                continue
            places.add(name)
            problems.append(_type_problem(known.get(name), name, fault, f"{key}.{name}"))
        return problems + _number_problems(known, {k: v for k, v in given.items() if k not in places}, key)
    return problems + _number_problems(known, given, key)


def _number_problems(known: dict[str, Parameter], given: dict[str, Any], key: str) -> list[Problem]:
    """Numbers that are not finite, or larger than what a parameter of that name can mean."""
    problems = []
    for name, item in given.items():
        own = name in known and not known[name].kind  # another component's numbers are checked with it
        fault = number_fault(name, known[name].annotation, item) if own else None
        if fault:
            got, expected = fault
            problems.append(Problem(f"{key}.{name}", "this value does not fit", got=shown(got), expected=expected))
    return problems


def _type_problem(parameter: Parameter | None, name: str, fault: Any, key: str) -> Problem:
    wanted = parameter.type_text if parameter else ""
    if fault["type"] == "missing":
        return Problem(key, f"{name!r} must be given", expected=wanted)
    bounds = fault["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if parameter is not None and not has_bounds(parameter.annotation):
        bounds = wanted
    return Problem(key, "this value does not fit", got=shown(fault["input"]), expected=bounds)


def _unknown_key(name: str, known: list[str], key: str) -> Problem:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else ""
    return Problem(key, f"unknown key {name!r}", expected=", ".join(known) or "no parameters", hint=hint)


def _nested(parameter: Parameter, value: Any, key: str) -> list[Problem]:
    assert parameter.kind is not None
    if value is None:
        return []
    if isinstance(value, list):
        return [p for i, item in enumerate(value) for p in check(parameter.kind, item, f"{key}[{i}]")]
    return check(parameter.kind, value, key)
