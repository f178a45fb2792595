"""Loads registered checkpoints: published files with their layouts and tensors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from vlcli.checkpoints.layout import Tensors, expand
from vlcli.errors import ComponentError, Problem, RecipeError, did_you_mean
from vlcli.recipe import yaml
from vlcli.recipe.check import by_place, typed
from vlcli.recipe.fields import Section
from vlcli.recipe.load import registered_file
from vlcli.registry import entries

# In place of a fact that neither the authors' repository nor an official page states
NOT_VERIFIED = "not verified"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._+/-]*$"

Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=3, max_length=1000)]
Size = int | str
Rules = dict[str, str]
Reasons = dict[str, Text]


class Score(Section):
    """A published number, as printed; ``task`` is data set and split."""

    task: Name
    metric: Name
    value: float


class Reading(Section):
    """The model or extractor that reads a file, and the tensors that have no counterpart.

    Attributes:
        objectives: whose heads are read too.
        data: sizes that usually come from data: the fields of ``vlcli.nn.DataSpec``, and ``answers`` as a number.
        excused: reasons, by regular expression (searched), why tensors of the file are not read.
        new: the same for weights of the model that the file lacks.
    """

    model: dict[str, Any] | None = None
    extractor: dict[str, Any] | None = None
    objectives: list[Any] = Field(default_factory=list)
    data: dict[str, Size] = Field(default_factory=dict)
    excused: Reasons = Field(default_factory=dict)
    new: Reasons = Field(default_factory=dict)


class Layout(Reading):
    """The tensors of a kind of file.

    Attributes:
        about: the program that wrote it.
        code: repository and file that names and shapes were compared with.
        extends: a layout of the same file whose keys are taken over.
        sizes: numbers by name, for shapes and ranges.
        tensors: rules of :mod:`vlcli.checkpoints.layout`.
        without: regular expressions (matched whole) of names of the extended layout that this one lacks.
    """

    about: Text | None = None
    code: Text | None = None
    extends: Name | None = None
    sizes: dict[str, Size] = Field(default_factory=dict)
    tensors: Rules = Field(default_factory=dict)
    without: list[Name] = Field(default_factory=list)


class File(Reading):
    """A published file.

    Attributes:
        name: of the downloaded file, or of the folder of the Hugging Face hub.
        licence: as the source names it, or :data:`NOT_VERIFIED`.
        sizes: those that differ from the layout's.
        loads: False if vlcli does not read the file; ``about`` says why.
    """

    name: Annotated[str, Field(pattern=NAME, max_length=120)]
    url: Annotated[str, Field(pattern=r"^https?://\S+$")]
    licence: Name
    layout: Name
    sizes: dict[str, Size] = Field(default_factory=dict)
    scores: list[Score] = Field(default_factory=list)
    about: Text
    loads: Literal[True, False] = True


class CheckpointsFile(Section):
    """The published checkpoints of a package; ``title`` has papers and repositories, ``blocks`` shared rules."""

    family: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
    title: Text
    blocks: dict[str, Rules] = Field(default_factory=dict)
    layouts: dict[str, Layout]
    files: Annotated[list[File], Field(min_length=1)]

    @model_validator(mode="after")
    def _known(self) -> CheckpointsFile:
        unknown = [f"{one.name}: layout {one.layout!r}" for one in self.files if one.layout not in self.layouts]
        known = (None, *self.layouts)
        unknown += [f"{n}: extends {x.extends!r}" for n, x in self.layouts.items() if x.extends not in known]
        if unknown:
            raise ValueError(f"there is no such layout: {'; '.join(unknown)}")
        return self


@dataclass(frozen=True)
class Checkpoint:
    """A published file with its layout (merged with those it extends) and the registered file of checkpoints."""

    file: File
    layout: Layout
    family: CheckpointsFile

    @property
    def name(self) -> str:
        return self.file.name

    @cached_property
    def tensors(self) -> Tensors:
        return self.sized()

    def sized(self, **changed: int) -> Tensors:
        """Returns the tensors with other sizes, such as ``hidden=32``."""
        tensors = expand(self.layout.tensors, {**self.layout.sizes, **self.file.sizes, **changed}, self.family.blocks)
        without = [re.compile(pattern) for pattern in self.layout.without]
        return {name: entry for name, entry in tensors.items() if not any(one.fullmatch(name) for one in without)}

    @property
    def reader(self) -> dict[str, Any]:
        """``kind`` (``model`` or ``extractor``), name and options of the component that reads the file."""
        part = "extractor" if self.layout.extractor or self.file.extractor else "model"
        return {"kind": part, **(getattr(self.layout, part) or {}), **(getattr(self.file, part) or {})}

    @property
    def objectives(self) -> list[Any]:
        return self.file.objectives or self.layout.objectives

    @property
    def data(self) -> dict[str, int | str]:
        return {**self.layout.data, **self.file.data}

    @property
    def excused(self) -> dict[str, str]:
        return {**self.layout.excused, **self.file.excused}

    @property
    def new(self) -> dict[str, str]:
        return {**self.layout.new, **self.file.new}


def every(families: tuple[str, ...] = ()) -> list[Checkpoint]:
    """Returns the registered checkpoints of some packages or of all.

    Raises:
        RecipeError: every fault of a registered file.
    """
    chosen = [entry for entry in entries("checkpoints") if not families or entry.name in families]
    files = [registered_file("checkpoints", f"{entry.distribution}:{entry.name}").file for entry in chosen]
    return [one for file in files for one in read(file)]


def of_layouts() -> list[Checkpoint]:
    """Returns one checkpoint for each layout and size; a layout without a public file has a substitute."""
    first: dict[tuple[str, str], Checkpoint] = {}
    for one in every():
        first.setdefault((one.family.family, f"{one.file.layout} {one.file.sizes}"), one)
        for name, layout in one.family.layouts.items():
            if (one.family.family, name) not in first and not any(file.layout == name for file in one.family.files):
                about = layout.about or name
                file = File(name=name, url=one.file.url, licence=NOT_VERIFIED, layout=name, about=about)
                first[one.family.family, name] = Checkpoint(file, whole(one.family, name), one.family)
    return list(first.values())


def named(name: str) -> Checkpoint:
    """Returns the checkpoint of a file name. Raises ComponentError: none is registered (with the nearest names)."""
    known = {one.name: one for one in every()}
    if name not in known:
        hint = did_you_mean(name, known, 3, 0.4) or "list them: vlcli ls checkpoints"
        raise ComponentError(f"No published checkpoint is called {name!r}, and there is no such file.", hint=hint)
    return known[name]


def read(path: Path) -> list[Checkpoint]:
    """Reads the checkpoints of one file, again only if it has changed.

    Raises:
        RecipeError: it cannot be read; or every fault, with its line.
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
    """Returns a layout merged with those that it extends. Raises RecipeError: they extend one another in a circle."""
    chain = [name]
    while (parent := family.layouts[chain[-1]].extends) is not None:
        if parent in chain:
            what, circle = "layouts extend one another in a circle", " -> ".join([*chain, parent])
            raise RecipeError([Problem(f"layouts.{name}", what, got=circle)], family.family)
        chain.append(parent)
    layout = family.layouts[chain.pop()]
    while chain:
        child, changed = family.layouts[chain.pop()], dict[str, Any]()
        for key in child.model_fields_set:  # mappings are joined; an empty one clears
            value, usual = getattr(child, key), getattr(layout, key)
            changed[key] = {**usual, **value} if value and isinstance(value, dict) and usual is not None else value
        changed["without"] = [*layout.without, *child.without]
        layout = layout.model_copy(update=changed)
    return layout
