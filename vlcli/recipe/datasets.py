"""Named data sets: a recipe says once under ``datasets`` what a name stands for, and stages use the name.

    datasets:
      mine: {name: csv, file: all.csv, text: question}
      held-out: {name: mine, take: "after:0.9"}
    stages:
      tune: {data: mine, validation: {name: mine, split: dev}}

A name stands for one entry or for a list of entries. Keys beside the name replace those of the named data set. Names
are replaced by what they stand for before a recipe is checked, so that stages, keys and records know readers alone.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

from vlcli.errors import Problem, shown
from vlcli.plain import as_list
from vlcli.recipe.yaml import Document, Path_
from vlcli.registry import names

KEY = "datasets"
_FIELDS = ("data", "validation", "fit")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*\Z")
Entries = list[dict[str, Any]]


def expand(document: Document) -> list[Problem]:
    """Replace the names of data sets by what they stand for, in ``document`` itself.

    Args:
        document: merged, with the overrides applied.

    Returns:
        Faults of the names: one that is also a reader's, one that stands for itself, one that cannot be a name.
    """
    named = document.value.get(KEY)
    if not isinstance(named, dict) or not named:
        return []
    found, problems = _named(named, document)
    stages = document.value.get("stages")
    places: list[tuple[dict[str, Any], Path_]] = [(document.value, ())]
    places += [
        (stage, ("stages", name))
        for name, stage in (stages.items() if isinstance(stages, dict) else ())
        if isinstance(stage, dict)
    ]
    for owner, path in places:
        for field in _FIELDS if path else ():
            if field in owner:
                owner[field] = _replaced(owner[field], (*path, field), found, document)
        vocabulary = owner.get("text", {}).get("vocabulary") if isinstance(owner.get("text"), dict) else None
        if isinstance(vocabulary, dict) and "train" in vocabulary:
            at = (*path, "text", "vocabulary", "train")
            vocabulary["train"] = _replaced(vocabulary["train"], at, found, document)
    document.value[KEY] = {**named, **found}
    return problems


def suggestion(name: str, recipe_datasets: dict[str, Any]) -> str:
    """The named data set of a recipe that is spelt nearly as ``name``; empty where none is."""
    close = difflib.get_close_matches(name, list(recipe_datasets), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def _named(named: dict[str, Any], document: Document) -> tuple[dict[str, Entries], list[Problem]]:
    """What each name stands for: readers alone; and the faults of names."""
    readers, problems = set(names(KEY)), []
    sound = {}
    for name, value in named.items():
        path: Path_ = (KEY, name)
        where, key = document.place(path), f"{KEY}.{name}"
        if not isinstance(name, str) or not _NAME.match(name):
            expected = "a letter, then letters, digits, '_', '-' and '.'"
            problems.append(Problem(key, "this cannot be the name of a data set", where, shown(name), expected))
        elif name in readers:
            what, hint = "a reader has this name", f"choose another name, such as my-{name}"
            problems.append(Problem(key, what, where, name, "a name that no reader has", hint))
        else:
            sound[name] = value
    found: dict[str, Entries] = {}
    for name in sound:
        made, circle = _stands_for(name, sound, ())
        if circle:
            where, got = document.place((KEY, name)), " -> ".join(circle)
            problems.append(Problem(f"{KEY}.{name}", "data sets stand for one another in a circle", where, got))
        elif made is not None:
            found[name] = made
    return found, problems


def _stands_for(name: str, named: dict[str, Any], within: tuple[str, ...]) -> tuple[Entries | None, list[str]]:
    """The entries behind a name; None where they have no form of entries (the schema says so), and a circle."""
    if name in within:
        return None, [*within[within.index(name) :], name]
    if named[name] is None:
        return None, []
    found: Entries = []
    for item in as_list(named[name]):
        entry = _entry(item)
        if entry is None:
            return None, []
        if entry["name"] not in named:
            found.append(entry)
            continue
        inner, circle = _stands_for(entry["name"], named, (*within, name))
        if inner is None:
            return None, circle
        found += [_over(one, entry) for one in inner]
    return found, []


def _replaced(given: Any, path: Path_, found: dict[str, Entries], document: Document) -> Any:
    """A data field with its names replaced; as it is where it names none."""
    items = as_list(given)
    if not any((entry := _entry(item)) is not None and entry["name"] in found for item in items):
        return given
    made: list[Any] = []
    for item in items:
        entry = _entry(item)
        if entry is None or entry["name"] not in found:
            made.append(item)
            continue
        for one in found[entry["name"]]:
            _note_places(document, (*path, len(made)), entry, one)
            made.append(_over(one, entry))
    return made


def _note_places(document: Document, path: Path_, entry: dict[str, Any], named: dict[str, Any]) -> None:
    """Faults of a replaced entry are told with the line of the key: at the data set, or where the stage changes it."""
    own = document.place(path)
    document.places[path] = own
    for key in named:
        at = document.place((KEY, entry["name"], key)) if key not in entry or key == "name" else own
        document.places[(*path, key)] = at


def _over(named: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    return {**named, **{key: value for key, value in entry.items() if key != "name"}}


def _entry(item: Any) -> dict[str, Any] | None:
    if isinstance(item, str):
        return {"name": item}
    return dict(item) if isinstance(item, dict) and isinstance(item.get("name"), str) else None
