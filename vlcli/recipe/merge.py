"""Merges a recipe over its parent (``extends``).

Mappings merge key by key; everything else (lists too) is replaced. A component whose ``name`` changes is replaced
whole, since its parameters belong to its name. ``key: ~`` sets a key to null; a stage set to null is taken out. A new
stage goes before the next stage its file names that the parent has, else to the end.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from vlcli.recipe.yaml import Document, Path_


def merge(parent: Document, child: Document) -> Document:
    """Returns ``child`` merged over ``parent``; changes neither."""
    places: dict[Path_, str] = {}
    return Document(_merge(parent, child, (), places), places)


def drop_null_stages(document: Document) -> None:
    """Removes stages set to null, the rows of the table that show them, and rows set to null."""
    stages, table = document.value.get("stages"), document.value.get("table")
    if not isinstance(stages, dict):
        return
    gone = {name for name, stage in stages.items() if stage is None}
    document.value["stages"] = {name: stage for name, stage in stages.items() if name not in gone}
    if isinstance(table, dict) and isinstance(table.get("rows"), dict):
        dropped = [None, *gone]
        kept = {label: name for label, name in table["rows"].items() if name not in dropped}
        document.value["table"] = {**table, "rows": kept}


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
            source = child if key in new else parent
            _take(source, inner, places)
            merged[key] = new[key] if key in new else old[key]
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
