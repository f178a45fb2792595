"""Finds the file of a recipe by a registered name, a path, or a row of a table (``TABLE:ROW``)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from vlcli.errors import UsageError, VlcliError
from vlcli.recipe.resolved import RecipeFile
from vlcli.registry import find, names
from vlcli.registry.packages import package_folder


def slug(name: str) -> str:
    """Returns a name fit for a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "recipe"


def locate(reference: str, beside: RecipeFile | None = None) -> RecipeFile:
    """Returns the file of a recipe, and its row if the reference is ``TABLE:ROW``.

    Args:
        reference: a registered name, or a path (relative to the recipe ``beside``, else to here); behind a colon, a
            row. ``:ROW`` is a row of ``beside`` itself.
        beside: the recipe that names it under ``extends``.

    Raises:
        ComponentError: no recipe has this name (with suggestions).
        UsageError: the path names no file, or leaves its package.
    """
    if beside is not None and reference.startswith(":"):
        return replace(beside, name=f"{beside.table}{reference}", row=reference[1:])
    whole = _whole(reference, beside)
    if whole is not None:
        return whole
    table, _, row = reference.rpartition(":")
    of_table = _whole(table, beside) if table and row else None
    if of_table is not None:
        return replace(of_table, name=f"{of_table.name}:{row}", row=row)
    if reference.endswith((".yaml", ".yml")):
        folder = beside.file.parent if beside else Path()
        where = str(folder / Path(reference).expanduser())
        raise UsageError("There is no such recipe file.", where=where, hint="list recipes: vlcli ls recipes")
    return registered_file("recipes", reference)


def is_recipe(reference: str) -> bool:
    """Returns True if a word of the command line names a recipe or a row."""
    if reference.endswith((".yaml", ".yml")):
        return True
    try:
        locate(reference)
    except VlcliError:
        return False
    return True


def _whole(reference: str, beside: RecipeFile | None) -> RecipeFile | None:
    is_path, known = reference.endswith((".yaml", ".yml")), {name.lower() for name in names("recipes")}
    head, _, tail = reference.rpartition(":")
    is_named = tail.lower() in known and head.lower() not in known  # a name, or DISTRIBUTION:NAME; else TABLE:ROW
    if is_named and not is_path:
        return registered_file("recipes", reference)
    folder = beside.file.parent if beside else Path()
    file = folder / Path(reference).expanduser()
    if beside and beside.tree and not file.resolve().is_relative_to(beside.tree.resolve()):
        raise UsageError("A recipe's parent lies outside its package.", where=str(beside.file), got=reference)
    return RecipeFile(reference, file, beside.tree if beside else None) if file.is_file() else None


def registered_file(kind: str, reference: str) -> RecipeFile:
    """Returns the file of a registered recipe, or of another kind of ``registry.FILES``.

    Raises:
        ComponentError: nothing of this kind has the name (with suggestions).
        UsageError: the file is not there.
    """
    entry = find(kind, reference)
    reference = reference.removesuffix(reference.rpartition(":")[2]) + entry.name  # as it is registered
    if isinstance(entry.loaded, str | Path):
        return RecipeFile(reference, Path(entry.loaded))
    package, _, stem = entry.value.partition(":")
    tree, folder = package_folder(package)
    file = folder / f"{stem}.yaml"
    if not file.is_file():
        hint = f"reinstall {entry.distribution}: its data files are missing"
        raise UsageError("A registered recipe's file is missing.", where=str(file), got=entry.value, hint=hint)
    return RecipeFile(reference, file, tree)
