"""Registered checkpoints: files found through the registry, layouts with what they extend, tensors by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from vlcli.checkpoints.layout import Tensors, expand
from vlcli.checkpoints.schema import NOT_VERIFIED, CheckpointsFile, File, Layout
from vlcli.errors import ComponentError, Problem, RecipeError, did_you_mean
from vlcli.recipe import yaml
from vlcli.recipe.check import by_place, typed
from vlcli.recipe.load import registered_file
from vlcli.registry import entries


@dataclass(frozen=True)
class Checkpoint:
    """A published file with its layout.

    Attributes:
        file: what is published about it.
        layout: with everything that it takes from layouts it extends.
        family: the registered file of checkpoints.
    """

    file: File
    layout: Layout
    family: CheckpointsFile

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.file.name

    @cached_property
    def tensors(self) -> Tensors:
        """Name, shape and type of every tensor."""
        return self.sized()

    def sized(self, **changed: int) -> Tensors:
        """The same with other sizes: ``hidden=32``."""
        made = expand(self.layout.tensors, {**self.layout.sizes, **self.file.sizes, **changed}, self.family.blocks)
        gone = [re.compile(pattern) for pattern in self.layout.without]
        return {name: entry for name, entry in made.items() if not any(one.fullmatch(name) for one in gone)}

    @property
    def reader(self) -> dict[str, Any]:
        """The model or extractor that reads it: ``kind``, name and options."""
        part = "extractor" if self.layout.extractor or self.file.extractor else "model"
        own, usual = getattr(self.file, part) or {}, getattr(self.layout, part) or {}
        return {"kind": part, **usual, **own}

    @property
    def objectives(self) -> list[Any]:
        """Whose heads it fills."""
        return self.file.objectives or self.layout.objectives

    @property
    def data(self) -> dict[str, int | str]:
        """Sizes that usually come from data."""
        return {**self.layout.data, **self.file.data}

    @property
    def excused(self) -> dict[str, str]:
        """Tensors of the file that are not read, by pattern, and why."""
        return {**self.layout.excused, **self.file.excused}

    @property
    def new(self) -> dict[str, str]:
        """Weights of the model that the file lacks, by pattern, and why."""
        return {**self.layout.new, **self.file.new}


def every(families: tuple[str, ...] = ()) -> list[Checkpoint]:
    """The registered checkpoints, of some packages or of all.

    Raises:
        RecipeError: a registered file has faults; all of them.
    """
    found: list[Checkpoint] = []
    for entry in entries("checkpoints"):
        if not families or entry.name in families:
            found += read(registered_file("checkpoints", f"{entry.distribution}:{entry.name}").file)
    return found


def of_layouts() -> list[Checkpoint]:
    """One checkpoint for each layout and size: its first file, or a stand-in where no file is public."""
    found: dict[tuple[str, str], Checkpoint] = {}
    for one in every():
        found.setdefault((one.family.family, f"{one.file.layout} {one.file.sizes}"), one)
        for name, layout in one.family.layouts.items():
            if (one.family.family, name) not in found and not any(file.layout == name for file in one.family.files):
                about = layout.about or name
                file = File(name=name, url=one.file.url, licence=NOT_VERIFIED, layout=name, about=about)
                found[one.family.family, name] = Checkpoint(file, whole(one.family, name), one.family)
    return list(found.values())


def named(name: str) -> Checkpoint:
    """The checkpoint of that file name.

    Raises:
        ComponentError: none is registered (with the nearest names).
    """
    known = {one.name: one for one in every()}
    if name not in known:
        hint = did_you_mean(name, known, 3, 0.4) or "list them: vlcli ls checkpoints"
        raise ComponentError(f"No published checkpoint is called {name!r}, and there is no such file.", hint=hint)
    return known[name]


def read(path: Path) -> list[Checkpoint]:
    """The checkpoints of one file.

    Raises:
        RecipeError: it cannot be read, or has faults; all of them, each with its line.
    """
    return list(_read(path, path.stat().st_mtime_ns if path.is_file() else 0))


@cache
def _read(path: Path, _changed: int) -> tuple[Checkpoint, ...]:
    document = yaml.read(path)
    if not isinstance(document.value, dict):
        problem = Problem("", "a file of checkpoints is a mapping", str(path), expected="family, title, layouts, files")
        raise RecipeError([problem], str(path))
    family, problems = typed(CheckpointsFile, document)
    if problems:
        error = RecipeError(sorted(problems, key=by_place), str(path))
        error.what = error.what.replace("in recipe", "in checkpoints")
        raise error
    return tuple(Checkpoint(one, whole(family, one.layout), family) for one in family.files)


def whole(family: CheckpointsFile, name: str) -> Layout:
    """A layout with everything that it takes from those it extends.

    Raises:
        RecipeError: layouts extend one another in a circle.
    """
    chain = [name]
    while (parent := family.layouts[chain[-1]].extends) is not None:
        if parent in chain:
            problem = Problem(
                f"layouts.{name}", "layouts extend one another in a circle", got=" -> ".join([*chain, parent])
            )
            raise RecipeError([problem], family.family)
        chain.append(parent)
    made = family.layouts[chain.pop()]
    while chain:
        made = _merged(made, family.layouts[chain.pop()])
    return made


def _merged(base: Layout, own: Layout) -> Layout:
    changed: dict[str, Any] = {}
    for key in own.model_fields_set:
        value, usual = getattr(own, key), getattr(base, key)
        changed[key] = {**usual, **value} if value and isinstance(value, dict) and usual is not None else value
    changed["without"] = [*base.without, *own.without]
    return base.model_copy(update=changed)
