"""Merges a recipe over its parent (``extends``), and replaces the names of data sets by their readers.

Mappings merge key by key; everything else (lists too) is replaced. A component whose ``name`` changes is replaced
whole. ``key: ~`` sets a key to null; a stage set to null is taken out. A new stage goes before the next stage that its
file names and the parent has, else to the end.

    datasets:
      mine: {name: csv, file: all.csv, text: question}
      held-out: {name: mine, take: "after:0.9"}
    stages: {tune: {data: mine, validation: {name: mine, split: dev}}}

A name stands for one entry or for a list of entries. Keys beside the name replace those of the named data set.
"""

import re
from functools import reduce
from typing import Any

from vlcli.errors import Problem, shown
from vlcli.plain import as_list
from vlcli.recipe.yaml import Document, Path_, section
from vlcli.registry import names

KEY = "datasets"
_FIELDS = ("data", "validation", "fit")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*\Z")
Entries = list[dict[str, Any]]


def expand_datasets(document: Document) -> list[Problem]:
    """Replaces the names of data sets in place, after the overrides; returns faults: a reader's name, a circle."""
    named = section(document.value, KEY)
    if not named:
        return []
    entries, problems = _named(named, document)
    stages = section(document.value, "stages")
    owners: dict[Path_, dict[str, Any]] = {("stages", name): section(stages, name) for name in stages}
    for path, owner in {(): document.value, **owners}.items():
        for field in _FIELDS:
            if field in owner:
                owner[field] = _replaced(owner[field], (*path, field), entries, document)
        vocabulary = section(owner, "text", "vocabulary")
        if "train" in vocabulary:
            at = (*path, "text", "vocabulary", "train")
            vocabulary["train"] = _replaced(vocabulary["train"], at, entries, document)
    document.value[KEY] = {**named, **entries}
    return problems


def _named(named: dict[str, Any], document: Document) -> tuple[dict[str, Entries], list[Problem]]:
    readers, problems = set(names(KEY)), []
    sound = {}
    for name, value in named.items():
        path: Path_ = (KEY, name)
        if not isinstance(name, str) or not _NAME.match(name):
            expected = "a letter, then letters, digits, '_', '-' and '.'"
            problems.append(document.fault(path, "this cannot be the name of a data set", shown(name), expected))
        elif name in readers:
            what, hint = "a reader has this name", f"choose another name, such as my-{name}"
            problems.append(document.fault(path, what, name, "a name that no reader has", hint))
        else:
            sound[name] = value
    entries: dict[str, Entries] = {}
    for name in sound:
        of_name, circle = _stands_for(name, sound, ())
        if circle:
            what = "data sets stand for one another in a circle"
            problems.append(document.fault((KEY, name), what, " -> ".join(circle)))
        elif of_name is not None:
            entries[name] = of_name
    return entries, problems


def _stands_for(name: str, named: dict[str, Any], within: tuple[str, ...]) -> tuple[Entries | None, list[str]]:
    if name in within:
        return None, [*within[within.index(name) :], name]
    if named[name] is None:
        return None, []
    entries: Entries = []
    for item in as_list(named[name]):
        entry = _entry(item)
        if entry is None:
            return None, []
        if entry["name"] not in named:
            entries.append(entry)
            continue
        inner, circle = _stands_for(entry["name"], named, (*within, name))
        if inner is None:
            return None, circle
        entries += [{**one, **entry, "name": one["name"]} for one in inner]
    return entries, []


def _replaced(value: Any, path: Path_, entries: dict[str, Entries], document: Document) -> Any:
    items = as_list(value)
    if not any((entry := _entry(item)) is not None and entry["name"] in entries for item in items):
        return value
    replaced: list[Any] = []
    for item in items:
        entry = _entry(item)
        if entry is None or entry["name"] not in entries:
            replaced.append(item)
            continue
        for named in entries[entry["name"]]:
            at = (*path, len(replaced))
            line = document.places[at] = document.place(at)
            for key in named:  # the line of the data set's key, unless the stage changes it
                of_set = key not in entry or key == "name"
                document.places[(*at, key)] = document.place((KEY, entry["name"], key)) if of_set else line
            replaced.append({**named, **entry, "name": named["name"]})
    return replaced


def _entry(item: Any) -> dict[str, Any] | None:
    if isinstance(item, str):
        return {"name": item}
    return dict(item) if isinstance(item, dict) and isinstance(item.get("name"), str) else None


def merge(parent: Document, child: Document) -> Document:
    """Returns ``child`` merged over ``parent``; changes neither."""
    places: dict[Path_, str] = {}
    return Document(_merge(parent, child, (), places), places)


def drop_null_stages(document: Document) -> None:
    """Removes stages set to null, the rows of the table that show them, and rows set to null."""
    stages, rows = section(document.value, "stages"), section(document.value, "table", "rows")
    gone = [None, *(name for name, stage in stages.items() if stage is None)]
    if stages:
        document.value["stages"] = {name: stage for name, stage in stages.items() if stage is not None}
    if rows:
        kept = {label: name for label, name in rows.items() if name not in gone}
        document.value["table"] = {**document.value["table"], "rows": kept}


def _merge(parent: Document, child: Document, path: Path_, places: dict[Path_, str]) -> Any:
    old, new = (reduce(lambda value, key: value[key], path, one.value) for one in (parent, child))
    if isinstance(old, str) and isinstance(new, dict) and "name" not in new and path and path[-1] != "stages":
        _take(child, path, places)
        return {"name": old, **new}
    both = isinstance(old, dict) and isinstance(new, dict)
    # A name elsewhere is a component's: the recipe's own is that of its run folder, and a stage may be called so.
    named = both and path not in ((), ("stages",)) and "name" in old and "name" in new
    if not both or (named and old["name"] != new["name"]):
        _take(child, path, places)
        return new
    places[path] = child.places.get(path, parent.places.get(path, ""))
    merged: dict[str, Any] = {}
    for key in _order(list(old), list(new)):
        inner: Path_ = (*path, key)
        if key in old and key in new:
            merged[key] = _merge(parent, child, inner, places)
        else:
            source, merged[key] = (child, new[key]) if key in new else (parent, old[key])
            _take(source, inner, places)
    return merged


def _order(old: list[str], new: list[str]) -> list[str]:
    order = list(old)
    for index, key in enumerate(new):
        if key in old:
            continue
        following = next((later for later in new[index + 1 :] if later in old), None)
        order.insert(order.index(following) if following is not None else len(order), key)
    return order


def _take(source: Document, path: Path_, places: dict[Path_, str]) -> None:
    places.update({p: where for p, where in source.places.items() if p[: len(path)] == path})
