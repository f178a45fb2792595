"""Holds a loaded recipe: file, row, merged document and typed stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from vlcli.recipe.schema import Recipe, Stage
from vlcli.recipe.yaml import Document, Path_


@dataclass(frozen=True)
class Published:
    """A number that a paper prints.

    Attributes:
        spread: standard deviation or half width beside it; None where the paper prints none.
        split: of which it is, in the words of the recipe.
        unit: ``share`` is the paper's per cent divided by 100.
        table: of the paper; ``page`` likewise, empty where it is not known.
        measures: the split that the recipe's evaluate stage reads.
    """

    value: float
    spread: float | None = None
    split: str = ""
    unit: str = "share"
    table: str = ""
    page: str = ""
    measures: str = ""

    @property
    def is_compared(self) -> bool:
        """True if the stage measures the same split."""
        return self.split == self.measures

    def told(self, metric: str) -> str:
        """Returns the number in words: ``published accuracy on test-standard: 0.725; this stage measures minival``."""
        text = f"published {metric} on {self.split}: {self.value:g}"
        return text if self.is_compared else f"{text}; this stage measures {self.measures or 'another split'}"


@dataclass(frozen=True)
class Row:
    """A row of a table, as a recipe writes it.

    Attributes:
        label: in a grid, the labels of all axes joined by ``/``.
        parts: the label on each axis; ``(label,)`` if the rows are no grid.
        path: in the recipe; in a grid, of the last axis that changes something.
        levels: mappings that are merged over the recipe, in order.
        published: the paper's numbers by metric; of a further split by ``METRIC on SPLIT``.
        unchanged: the row declares that it changes nothing.
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
    """A recipe's file, or a row of it; relative ``extends`` must not leave ``tree``, the data of a package."""

    name: str
    file: Path
    tree: Path | None = None
    row: str = ""

    @property
    def table(self) -> str:
        """The name without the row."""
        return self.name.removesuffix(f":{self.row}") if self.row else self.name


@dataclass
class Resolved:
    """A recipe merged with its parents and overrides, and checked against the schema.

    Attributes:
        name: of its run folder.
        reference: the name or path it was loaded by.
        sources: its file, then its parents'.
        words: the overrides, as typed.
        plugins: the Python files of its ``plugins:`` that were run.
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
        """Stages by name, in order."""
        return self.recipe.stages

    def of_kind(self, kind: str) -> list[str]:
        """Returns the names of the stages of ``kind``."""
        return [name for name, stage in self.stages.items() if stage.kind == kind]
