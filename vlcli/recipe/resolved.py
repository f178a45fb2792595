"""A recipe after its parents, overrides and schema: what the rest of the program passes around."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from vlcli.recipe.schema import Recipe, Stage
from vlcli.recipe.yaml import Document, Path_

Published = tuple[float, float | None]
"""A published number: the mean, and its spread over runs where the paper gives one."""


@dataclass(frozen=True)
class Row:
    """A row of a table, as a recipe writes it.

    Attributes:
        label: its label; in a grid, the labels of all axes joined by ``/``.
        parts: the label on each axis; ``(label,)`` where the rows are no grid.
        path: where it stands in the recipe; in a grid, where the table's rows do.
        levels: the mappings that are merged over the recipe, in order, with the places of their keys.
        about: what it is, in words.
        published: what the paper measured, by metric, in the metric's unit.
        unchanged: whether it says that it is the recipe as it stands.
    """

    label: str
    parts: tuple[str, ...]
    path: Path_
    levels: tuple[Document, ...]
    about: str = ""
    published: dict[str, Published] = field(default_factory=dict)
    unchanged: bool = False


@dataclass(frozen=True)
class RecipeFile:
    """A recipe's file.

    Attributes:
        name: as it was called.
        file: where it lies.
        tree: the folder that relative ``extends`` must not leave (a package's data); None: any.
        row: the row of the table that is meant; empty: the recipe itself.
    """

    name: str
    file: Path
    tree: Path | None = None
    row: str = ""

    @property
    def table(self) -> str:
        """The name of the file's recipe, without a row."""
        return self.name.removesuffix(f":{self.row}") if self.row else self.name


@dataclass
class Resolved:
    """A recipe with its parents, the overrides applied, checked against the schema.

    Attributes:
        name: what its run folder is called.
        reference: the name or path it was loaded by.
        recipe: the recipe; ``stages`` holds typed stages.
        document: the merged document, with the place of every key.
        sources: its file, then its parents'.
        words: the overrides, as typed.
        plugins: the Python files of its ``plugins:`` that were run.
        row: the row of a table that this is; None: a recipe of its own.
    """

    name: str
    reference: str
    recipe: Recipe
    document: Document
    sources: list[RecipeFile] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    plugins: list[Path] = field(default_factory=list)
    row: Row | None = None

    @property
    def stages(self) -> dict[str, Stage]:
        """The stages by name, in order."""
        return self.recipe.stages

    def of_kind(self, kind: str) -> list[str]:
        """Names of the stages of ``kind``."""
        return [name for name, stage in self.stages.items() if stage.kind == kind]
