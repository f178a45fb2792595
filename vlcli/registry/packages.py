"""Finds packages of recipes: one entry point names a folder of YAML files, each of which is a recipe.

    [project.entry-points."vlcli.recipes"]
    my-paper = "my_paper.recipes"          # a folder of the package my_paper
    alone = "my_other:alone"               # one file, alone.yaml in the folder of my_other

The recipe of ``table_1.yaml`` in such a folder is called ``my-paper/table-1``; that of ``my_paper.yaml``, which is
called like the entry point, ``my-paper``. Files whose names begin with ``_`` are no recipes.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from vlcli.registry.entry import Entry


def package_folder(package: str) -> tuple[Path, Path]:
    """Returns the folders of a package's top level and of the package itself, without importing either."""
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
    """Returns the recipes of an entry point that names a folder; the entry itself if the folder has none."""
    _, folder = package_folder(entry.value)
    recipes = []
    for parts in sorted(file.relative_to(folder).with_suffix("").parts for file in folder.rglob("*.yaml")):
        if any(part.startswith(("_", ".")) for part in parts):
            continue
        words = [part.replace("_", "-") for part in parts]
        name = entry.name if words == [entry.name.rpartition("/")[2]] else "/".join([entry.name, *words])
        recipes.append(replace(entry, name=name, value=f"{'.'.join([entry.value, *parts[:-1]])}:{parts[-1]}"))
    return tuple(recipes) or (entry,)
