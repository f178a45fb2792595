"""A recipe after its parents, overrides and schema: what the rest of the program passes around."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from vlcli.recipe.schema import Recipe, Stage
from vlcli.recipe.yaml import Document


@dataclass(frozen=True)
class RecipeFile:
    """A recipe's file.

    Attributes:
        name: as it was called.
        file: where it lies.
        tree: the folder that relative ``extends`` must not leave (a package's data); None: any.
    """

    name: str
    file: Path
    tree: Path | None = None


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
    """

    name: str
    reference: str
    recipe: Recipe
    document: Document
    sources: list[RecipeFile] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    plugins: list[Path] = field(default_factory=list)

    @property
    def stages(self) -> dict[str, Stage]:
        """The stages by name, in order."""
        return self.recipe.stages

    def of_kind(self, kind: str) -> list[str]:
        """Names of the stages of ``kind``."""
        return [name for name, stage in self.stages.items() if stage.kind == kind]
