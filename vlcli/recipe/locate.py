"""Finds the file of a recipe by a registered name, a path, or a row of a table, and holds what is loaded from it."""

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from unicodedata import normalize

from vlcli.errors import UsageError, VlcliError
from vlcli.recipe.schema import Recipe, Stage
from vlcli.recipe.yaml import Document, Path_
from vlcli.registry import find, names
from vlcli.registry.packages import package_folder

_UNFIT = re.compile(r"[\s\0-,/:-@[-^`{-\xa0\ud800-\udfff]+")
# In place of a split: a published number of parameters or operations, which ``vlcli count`` counts too
COUNTED = "count"


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
        return self.split == self.measures

    @property
    def text(self) -> str:
        """The value without its spread: ``0.725``, ``22,050,000``."""
        return f"{self.value:,.12g}"

    def told(self, metric: str) -> str:
        if self.split == COUNTED:
            return f"published {metric}: {self.text}; the command count has ours"
        text = f"published {metric} on {self.split}: {self.text}"
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
        return self.name.removesuffix(f":{self.row}") if self.row else self.name


@dataclass
class Resolved:
    """A recipe merged with its parents and overrides, and checked against the schema.

    Attributes:
        name: of its run folder.
        reference: the name or path it was loaded by.
        sources: its file, then its parents'.
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
        return self.recipe.stages

    def of_kind(self, kind: str) -> list[str]:
        return [name for name, stage in self.stages.items() if stage.kind == kind]


def slug(name: str) -> str:
    """Returns a name fit for a folder: letters of every script stay; at most 200 bytes, which leave room for a hash."""
    fit = _UNFIT.sub("-", normalize("NFC", name)).encode()[:200].decode(errors="ignore")
    return fit.strip("-.") or "recipe"


def locate(reference: str, beside: RecipeFile | None = None) -> RecipeFile:
    """Returns the file of a recipe, and its row if the reference is ``TABLE:ROW``.

    Args:
        reference: a registered name, or a path (relative to the recipe ``beside``, else to here); behind a colon, a
            row. ``:ROW`` is a row of ``beside``, the recipe that names it under ``extends``.

    Raises:
        ComponentError: no recipe has this name (with suggestions).
        UsageError: the path names no file, or leaves its package.
    """
    if beside is not None and reference.startswith(":"):
        return replace(beside, name=f"{beside.table}{reference}", row=reference[1:])
    if (whole := _whole(reference, beside)) is not None:
        return whole
    table, _, row = reference.rpartition(":")
    if table and row and (of_table := _whole(table, beside)) is not None:
        return replace(of_table, name=f"{of_table.name}:{row}", row=row)
    if reference.endswith((".yaml", ".yml")):
        where = str((beside.file.parent if beside else Path()) / Path(reference).expanduser())
        raise UsageError("There is no such recipe file.", where=where, hint="list recipes: vlcli ls recipes")
    return registered_file("recipes", reference)


def is_recipe(reference: str) -> bool:
    """Returns True if a word of the command line names a recipe or a row."""
    with suppress(VlcliError):
        return reference.endswith((".yaml", ".yml")) or bool(locate(reference))
    return False


def _whole(reference: str, beside: RecipeFile | None) -> RecipeFile | None:
    is_path, known = reference.endswith((".yaml", ".yml")), {name.lower() for name in names("recipes")}
    head, _, tail = reference.rpartition(":")
    is_named = tail.lower() in known and head.lower() not in known  # a name, or DISTRIBUTION:NAME; else TABLE:ROW
    if is_named and not is_path:
        return registered_file("recipes", reference)
    file = (beside.file.parent if beside else Path()) / Path(reference).expanduser()
    if beside and beside.tree and not file.resolve().is_relative_to(beside.tree.resolve()):
        raise UsageError("A recipe's parent lies outside its package.", where=str(beside.file), got=reference)
    return RecipeFile(reference, file, beside.tree if beside else None) if file.is_file() else None


def registered_file(kind: str, reference: str) -> RecipeFile:
    """Returns the file of a registered recipe, or of another kind of ``registry.FILES``.

    Raises ComponentError: nothing of this kind has the name (with suggestions); UsageError: the file is not there.
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
