"""The signatures of vlcli's public names and of what packages build on; and what a change of them breaks."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlcli.errors import did_you_mean
from vlcli.registry import public
from vlcli.registry.contract import CAPABLE, CONTRACTS

STORED = Path(__file__).parents[1] / "tests" / "docs" / "signatures.json"
Signatures = dict[str, list[str] | None]
"""Parameters by dotted name: ``text``, ``record=None``, ``*`` before those by keyword; None of what is not called.

``package.KIND`` has the methods that a package's component must define, and what its ``__init__`` is passed.
"""
DEFINED = "package."


def signatures() -> Signatures:
    """Return the signatures of every public function, class and method, and the contracts of components."""
    found: Signatures = {}
    for module in public.PUBLIC:
        there = importlib.import_module(module)
        for name in public.public_names(module):
            found |= of_object(f"{module}.{name}", getattr(there, name))
    for kind, contract in CONTRACTS.items():
        bases = [getattr(importlib.import_module(home), name) for home, name in (b.split(":") for b in contract.bases)]
        methods = {*contract.methods, *(name for base in bases for name in getattr(base, "__abstractmethods__", ()))}
        found[DEFINED + kind] = [*sorted(methods), *(f"passed {one}" for one in contract.passes)]
    return found | {f"{DEFINED}models that can {able}": list(methods) for able, methods in CAPABLE.items()}


def of_object(name: str, target: Any) -> Signatures:
    """Return the signature of an object and, of a class of vlcli, those of its public members."""
    found: Signatures = {name: parameters(target) if callable(target) else None}
    if inspect.isclass(target):
        for member in sorted(set(_members(target))):
            static = inspect.getattr_static(target, member, None)
            value = getattr(target, member) if isinstance(static, classmethod | staticmethod) else static
            bound = inspect.isfunction(static)
            found[f"{name}.{member}"] = parameters(value, bound=bound) if callable(value) else None
    return found


def _members(target: type) -> Iterator[str]:
    for owner in target.__mro__:
        if owner.__module__.partition(".")[0] == "vlcli":
            named = [*vars(owner), *vars(owner).get("__annotations__", ())]
            yield from (name for name in named if not name.startswith("_"))


def parameters(target: Any, bound: bool = False) -> list[str] | None:
    """Return the parameters of a callable without their types; None of one that vlcli does not define.

    Those of protocols, aliases of types and classes with the constructor of a built-in differ between Pythons.
    """
    protocol = getattr(target, "_is_protocol", False)
    if protocol or not (_constructed(target) if inspect.isclass(target) else inspect.isroutine(target)):
        return None
    try:
        known = list(inspect.signature(target).parameters.values())[bound:]
    except (TypeError, ValueError):
        return None
    rows: list[str] = []
    for one in known:
        if one.name.startswith("_"):
            continue
        by_keyword = one.kind is one.KEYWORD_ONLY and not any(row.startswith("*") for row in rows)
        default = "" if one.default is one.empty else f"={_shown(one.default)}"
        star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        rows += [*(["*"] if by_keyword else []), f"{star}{one.name}{default}"]
    return rows


def _constructed(target: type) -> bool:
    makers = (target.__init__, target.__new__)
    return any(map(inspect.isfunction, makers)) or makers == (object.__init__, object.__new__)


def _shown(default: Any) -> str:
    return getattr(default, "__qualname__", "") or re.sub(r" at 0x[0-9a-f]+", "", repr(default))


def breaks(before: Signatures, now: Signatures) -> list[str]:
    """Return a line for everything that worked with signatures as they were and no longer works.

    A parameter more breaks those who define a method of a class that components derive from.
    """
    lines: list[str] = []
    bases = plugin_bases()
    for name, was in before.items():
        owner = name.rpartition(".")[0]
        if name not in now:
            if owner not in before or owner in now:
                near = did_you_mean(name, [other for other in now if other not in before and other.startswith(owner)])
                lines.append(f"{name} is gone: whoever uses it fails" + (f" ({near})" if near else ""))
        elif name.startswith(DEFINED):
            lines += [f"{name[8:]}: a component must now have {one!r}" for one in now[name] or () if one not in was]
            lines += [f"{name[8:]}: {one!r} is no longer so" for one in was or () if one not in now[name]]
        elif was is not None and now[name] is None:
            lines.append(f"{name} can no longer be called")
        elif was is not None and now[name] is not None:
            lines += [f"{name}: {line}" for line in _changed(was, now[name] or [], owner in bases)]
    return lines


def _changed(was: list[str], now: list[str], defined: bool) -> Iterator[str]:
    (before, order, _), (after, new_order, takes_any) = _read(was), _read(now)
    added, gone = ([name for name in one if name not in other] for one, other in ((after, before), (before, after)))
    renamed = {old: new for old, new in zip(order, new_order, strict=False) if old in gone and new in added}
    for name in gone:
        if name in renamed:
            yield f"the parameter {name!r} is called {renamed[name]!r} now: calls by keyword fail"
        elif name in order or not takes_any:
            yield f"the parameter {name!r} is gone"
    for name in (name for name in order if name in after and name not in new_order):
        yield f"the parameter {name!r} is taken by keyword only"
    same = [renamed.get(name, name) for name in order if renamed.get(name, name) in new_order]
    if new_order[: len(same)] != same:
        yield f"the order was {', '.join(order)} and is {', '.join(new_order)}: calls by position mean something else"
    for name in (name for name in before if name in after and before[name] != after[name]):
        if before[name]:
            yield f"the default of {name!r} was {before[name]} and is {after[name] or 'none: it must be given'}"
    for name in (name for name in added if name not in renamed.values() and not name.startswith("*")):
        if not after[name]:
            yield f"the parameter {name!r} must be given now"
        elif defined:
            yield f"packages that define this method do not take {name!r}"


def _read(rows: list[str]) -> tuple[dict[str, str], list[str], bool]:
    # defaults by name, names that are taken by position, and whether any keyword is taken
    defaults = {name: default for name, _, default in (row.partition("=") for row in rows if row != "*")}
    order = [row.partition("=")[0] for row in rows]
    stop = next((place for place, name in enumerate(order) if name.startswith("*")), len(order))
    return defaults, order[:stop], any(row.startswith("**") for row in rows)


def plugin_bases() -> frozenset[str]:
    """Return the public names of the classes that components derive from."""
    return frozenset(
        public.public_name(base.replace(":", ".")) for contract in CONTRACTS.values() for base in contract.bases
    )


def stored() -> Signatures:
    """Return the stored copy."""
    copy: Signatures = json.loads(STORED.read_text(encoding="utf-8"))
    return copy


def written(known: Signatures) -> str:
    """Return the text of the stored copy, a line a name."""
    rows = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(known.items()))
    return "{\n" + ",\n".join(rows) + "\n}\n"
