"""Loads, checks and builds components; a broken package affects no other."""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar, cast

from pydantic import ValidationError

from vlcli.errors import ComponentError, Problem, did_you_mean, shown
from vlcli.registry.bounds import has_bounds, number_fault
from vlcli.registry.contract import CONTRACTS, blame, blamed, fault, in_a_line, incomplete, origin, place, unforeseen
from vlcli.registry.entries import entries, find
from vlcli.registry.packages import FILES, INTERFACE, OLDEST, Entry
from vlcli.registry.public import imports_of, warn_of_private_imports
from vlcli.registry.renames import RENAMED
from vlcli.registry.schema import Parameter, as_spec, documentation, parameters, validator
from vlcli.version import __version__

T = TypeVar("T")
_KINDS = {base: kind for kind, contract in CONTRACTS.items() for base in contract.bases}


@dataclass(frozen=True)
class Components(Generic[T]):
    """The components of one kind, typed by its base class."""

    kind: str

    def load(self, name: str) -> type[T]:
        """Calls :func:`vlcli.registry.load`."""
        return cast("type[T]", load(self.kind, name))

    def build(self, value: Any, *context: Any, **extra: Any) -> T:
        """Calls :func:`vlcli.registry.build`."""
        return cast("T", build(self.kind, value, *context, **extra))


def of(base: Callable[..., T]) -> Components[T]:
    """Returns the components of a kind by its base class, such as ``Model``. Raises KeyError: of no kind."""
    return Components(_KINDS[place(base)])


# Distributions whose private imports are not reported; a test or notebook registers in ``session``
TRUSTED = ("vlcli", "session")


@dataclass(frozen=True)
class Broken:
    """A component that cannot be used; ``place`` is ``file:line`` of its class or of the failing line, or ""."""

    entry: Entry
    cause: str
    place: str = ""


def load(kind: str, name: str) -> Any:
    """Returns the class or function registered as ``name``; warns of private imports of its package, once.

    Raises:
        ComponentError: unknown, ambiguous, its import fails, or (unless registered in the session) it lacks the base
            class or a method of its kind.
    """
    entry = find(kind, name)
    target = _imported(entry)
    if entry.distribution != "session" and (wrong := fault(kind, target)) and not _lacking(target, name, ""):
        where = origin(target) or f"{entry.distribution} {entry.version} ({entry.value})"
        raise incomplete(kind, name, wrong, where, entry.distribution)
    if entry.distribution not in TRUSTED:
        warn_of_private_imports(entry.package)
    return target


def _imported(entry: Entry) -> Any:
    try:
        return _target(entry)
    except ComponentError:
        raise
    except (Exception, SystemExit) as error:  # a module that calls sys.exit is broken too
        line = blame(error)
        what = f"The {entry.kind[:-1]} {entry.name!r} cannot be imported."
        where = f"{entry.distribution} {entry.version} ({entry.value})" + (f", {line}" if line else "")
        got, hint = in_a_line(error), getattr(error, "hint", "") or f"update, reinstall or remove {entry.distribution}"
        raise ComponentError(what, where=where, got=got, hint=hint) from error


def of_stranger(error: BaseException) -> ComponentError | None:
    """Returns the error of the component of another package whose code raised ``error``; None: vlcli's own did."""
    declared = (entry for entry in entries() if entry.distribution not in TRUSTED and entry.kind not in FILES)
    strangers = [entry for entry in declared if entry.loaded or entry.value.partition(":")[0] in sys.modules]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        for entry in strangers:
            with suppress(OSError, TypeError, ComponentError):
                target = _target(entry)
                lines, start = inspect.getsourcelines(target)
                if inspect.getsourcefile(target) == frame.filename and 0 <= (frame.lineno or 0) - start < len(lines):
                    return unforeseen(error, entry.kind, entry.name, target)
    return None


def private_imports_of(entry: Entry) -> list[str]:
    """Returns the private names of vlcli that the package of a loaded component imports, with remedies."""
    if entry.distribution in TRUSTED or entry.kind in FILES:
        return []
    return list(map(str, imports_of(entry.package)))


def status(kind: str | None = None) -> list[Broken]:
    """Imports every component of ``kind`` and returns those that are broken (``ls --check``, ``doctor``)."""
    broken = []
    for entry in (entry for entry in entries(kind) if entry.kind not in FILES):
        try:
            target = _target(entry)
            if wrong := fault(entry.kind, target):
                broken.append(Broken(entry, wrong, origin(target)))
        except (Exception, SystemExit) as error:  # a module that calls sys.exit is broken too
            broken.append(Broken(entry, in_a_line(error), blame(error)))
    return broken


def lacking(kind: str, name: str) -> str:
    """Returns the packages that a component lacks, and the command that installs them; or ""."""
    with suppress(ComponentError):
        lacks = (f"{problem.got}; {problem.hint}" for problem in _lacking(load(kind, name), name, ""))
        return next(lacks, "").removesuffix("; ")
    return ""


def lacking_early(kind: str, value: Any, key: str = "") -> list[Problem]:
    """Returns the packages that a component lacks by its metadata; it is imported, for the command, only if any is.

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
    """Returns every fault of a recipe's component: name, import, unknown keys, types, nested components.

    Args:
        value: a name, or a mapping with ``name`` and parameters.
        key: dotted path in the recipe.
    """
    try:
        spec = as_spec(value)
        target = load(kind, spec["name"])
        known = parameters(target)
    except ComponentError as error:
        return [Problem(key, error.what, got=error.got, expected=error.expected, hint=error.hint, code=4)]
    problems, options = _lacking(target, spec["name"], key), {}
    for name, item in spec.items():
        if new := RENAMED.get(f"{kind}.{spec['name']}.{name}"):
            what, hint = f"{name!r} has a new name", f"call it {new!r}"
            problems.append(Problem(f"{key}.{name}", what, got=name, expected=new, hint=hint))
        elif name != "name":
            options[name] = item
    problems += _value_problems(target, known, options, key)
    for name, item in options.items():
        nested = known[name].kind if name in known else None
        if nested and isinstance(item, list):
            problems += [p for i, one in enumerate(item) for p in check(nested, one, f"{key}.{name}[{i}]")]
        elif nested and item is not None:
            problems += check(nested, item, f"{key}.{name}")
    return problems


def build(kind: str, value: Any, *context: Any, **extra: Any) -> Any:
    """Builds the component that a recipe chose; the object keeps the recipe's entry as ``spec_in_recipe``.

    Args:
        value: a name, or a mapping with ``name`` and parameters.
        context: positional arguments, documented by the kind's base class.
        extra: keyword arguments that vlcli adds.

    Raises:
        ComponentError: unknown name, unknown parameter or a value of a wrong type.
    """
    spec = as_spec(value)
    target = load(kind, spec["name"])
    if problems := check(kind, spec, f"{kind[:-1]} {spec['name']}"):
        raise ComponentError(str(problems[0]))
    options = {name: item for name, item in spec.items() if name != "name"}
    values = validator(target)(**options)
    with blamed(kind, spec["name"], target) if kind == "datasets" else nullcontext():  # of others, callers ask for more
        component = target(*context, **{name: getattr(values, name) for name in options}, **extra)
    if not inspect.isfunction(target):
        with suppress(AttributeError, TypeError):
            component.spec_in_recipe = spec
    return component


def describe(kind: str, name: str) -> dict[str, Any]:
    """Imports a component and returns its facts for ``vlcli show``; ``broken`` is what it lacks of its kind."""
    entry = find(kind, name)
    target = _imported(entry)
    text = documentation(target)
    rows = []
    for one in parameters(target).values():
        default = None if one.required else one.default
        default = default if isinstance(default, str | int | float | bool | list | dict | type(None)) else str(default)
        rows.append({"name": one.name, "type": one.type_text, "required": one.required, "default": default})
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
        "parameters": rows,
    }


def _lacking(target: Any, name: str, key: str) -> list[Problem]:
    missing = [package for package in getattr(target, "packages", ()) if importlib.util.find_spec(package) is None]
    return [_lack(name, missing, key, getattr(target, "install", ""))] if missing else []


def _lack(name: str, missing: list[str], key: str, hint: str) -> Problem:
    what = f"{name} needs packages that are not installed"
    return Problem(key, what, got=f"missing: {', '.join(missing)}", hint=hint, code=4)


_resolved = cache(resolve_name)


def _target(entry: Entry) -> Any:
    stated, name = entry.interface, entry.distribution
    if not stated or (stated.isdecimal() and OLDEST <= int(stated) <= INTERFACE):
        return _resolved(entry.value) if entry.loaded is None else entry.loaded
    what, hint = f"The package {name} does not say which interface of vlcli it was written for.", "ask its author"
    if stated.isdecimal():
        old = int(stated) < OLDEST
        what = f"The package {name} is too {'old' if old else 'new'} for this vlcli."
        newer, older = (name, "vlcli") if old else ("vlcli", name)
        hint = f"pip install --upgrade {newer}; or install an earlier {older}"
    known = f"interface {INTERFACE}" if OLDEST == INTERFACE else f"an interface from {OLDEST} to {INTERFACE}"
    where, expected = f"{name} {entry.version}", f"{known} (vlcli {__version__})"
    raise ComponentError(what, where=where, got=f"interface {stated}", expected=expected, hint=hint)


def _value_problems(
    target: Callable[..., Any], known: dict[str, Parameter], options: dict[str, Any], key: str
) -> list[Problem]:
    problems = []
    for name in [name for name in options if name not in known]:
        expected, hint = ", ".join(known) or "no parameters", did_you_mean(name, known)
        problems.append(Problem(f"{key}.{name}", f"unknown key {name!r}", expected=expected, hint=hint))
    wrong: dict[str, Problem] = {}
    try:
        validator(target)(**{name: item for name, item in options.items() if name in known})
    except ValidationError as error:
        for one in error.errors():
            name = str(one["loc"][0]) if one["loc"] else ""
            wrong.setdefault(name, _type_problem(known.get(name), name, one, f"{key}.{name}"))
    for name, item in options.items():
        # The numbers of a nested component are checked with it.
        of_number = name in known and not known[name].kind and name not in wrong
        if of_number and (out := number_fault(name, known[name].annotation, item)):
            got, expected = shown(out[0]), out[1]
            wrong[name] = Problem(f"{key}.{name}", "this value does not fit", got=got, expected=expected)
    return [*problems, *wrong.values()]


def _type_problem(parameter: Parameter | None, name: str, error: Any, key: str) -> Problem:
    wanted = parameter.type_text if parameter else ""
    if error["type"] == "missing":
        return Problem(key, f"{name!r} must be given", expected=wanted)
    bounds = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if parameter is not None and not has_bounds(parameter.annotation):
        bounds = wanted
    return Problem(key, "this value does not fit", got=shown(error["input"]), expected=bounds)
