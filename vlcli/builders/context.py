"""Defines the input and the result of a stage's run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from vlcli.errors import DataError
from vlcli.progress import Progress, Silent
from vlcli.recipe.schema import Recipe, Stage
from vlcli.recipe.wiring import find_place

# Folder of a run for examples in columns, shared by its stages
CACHE = ".columns"
Section = TypeVar("Section", bound=Stage)


@dataclass
class StageContext:
    """Input of a stage's run.

    Attributes:
        config: section of the stage, of the class of its kind.
        folder: the stage writes here; exists, may have files of a killed run.
        inputs: artifact folders of finished stages before it, by name.
        root: the data root.
        device: ``cpu``, ``cuda``, ``cuda:1``, ``mps`` or ``auto``.
        resume: continue from the content of ``folder``.
        kinds: stage kind by name.
    """

    recipe: Recipe
    name: str
    config: Stage
    folder: Path
    inputs: Mapping[str, Path]
    root: Path
    seed: int = 0
    device: str = "auto"
    progress: Progress = field(default_factory=Silent)
    resume: bool = True
    kinds: Mapping[str, str] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        return self.folder.parent / CACHE

    def section(self, kind: type[Section]) -> Section:
        """Returns ``config``, which is of the given class."""
        assert isinstance(self.config, kind)
        return self.config

    def sources(self) -> list[Path]:
        """Returns the artifact folders that ``from`` names."""
        return [self.resolve(name) for name in self.config.source]

    def resolve(self, name: str) -> Path:
        """Returns a stage's artifact, or a path: here, under the data root, or in the hub's local cache.

        Raises:
            DataError: neither.
        """
        if name in self.inputs:
            return self.inputs[name]
        if (path := find_place(name, self.root)) is not None:
            return path
        hint = f"stages before this one: {', '.join(self.inputs) or 'none'}"
        raise DataError("There is no such stage or folder.", where=f"stages.{self.name}", got=name, hint=hint)

    def feature_files(self, named: list[str]) -> list[Path]:
        """Returns the stores of the stages ``named``, else of every extract stage before this one."""
        chosen = named or [name for name, kind in self.kinds.items() if kind == "extract" and name in self.inputs]
        return [path / "features.h5" if path.is_dir() else path for path in [self.resolve(name) for name in chosen]]


@dataclass
class StageResult:
    """Result of a stage, which the runner writes to ``stage.json``.

    Attributes:
        files: by role, relative to the stage's folder.
        notes: lines for the user.
        facts: further values (counts, load report).
    """

    metrics: dict[str, float] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)
