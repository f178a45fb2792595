"""Packages of recipes: one entry point names a folder of YAML files, each of which is a recipe.

    [project.entry-points."vlcli.recipes"]
    my-paper = "my_paper.recipes"          # a folder of the package my_paper
    alone = "my_other:alone"               # one file, alone.yaml in the folder of my_other

The recipe of ``table_1.yaml`` in such a folder is called ``my-paper/table-1``; that of ``my_paper.yaml``, which is
called like the entry point, ``my-paper``. Files whose names begin with ``_`` are no recipes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vlcli.registry.entries import Entry


def package_folder(package: str) -> tuple[Path, Path]:
    """The folders of a package's top level and of the package itself, found without importing either."""
    top, *rest = package.split(".")
    try:
        spec = importlib.util.find_spec(top)  # a top-level package is found without being imported
    except (ImportError, ValueError):
        spec = None
    folders = list(spec.submodule_search_locations or []) if spec else []
    tree = Path(folders[0]) if folders else Path(top)
    return tree, tree.joinpath(*rest)


@lru_cache(maxsize=64)
def expanded(entry: Entry) -> tuple[Entry, ...]:
    """The recipes of an entry point that names a folder; the entry itself where the folder holds none."""
    package = entry.value
    found = [replace(entry, name=_name(entry.name, parts), value=_value(package, parts)) for parts in _files(package)]
    return tuple(found) or (entry,)


def _files(package: str) -> tuple[tuple[str, ...], ...]:
    """Folders and stem of every recipe file below a package's folder."""
    _, folder = package_folder(package)
    return tuple(sorted(_below(folder, folder))) if folder.is_dir() else ()


def _below(folder: Path, top: Path) -> Iterator[tuple[str, ...]]:
    for file in folder.rglob("*.yaml"):
        parts = file.relative_to(top).with_suffix("").parts
        if not any(part.startswith(("_", ".")) for part in parts):
            yield parts


def _name(prefix: str, parts: tuple[str, ...]) -> str:
    words = [part.replace("_", "-") for part in parts]
    return prefix if words == [prefix.rpartition("/")[2]] else "/".join([prefix, *words])


def _value(package: str, parts: tuple[str, ...]) -> str:
    return f"{'.'.join([package, *parts[:-1]])}:{parts[-1]}"
