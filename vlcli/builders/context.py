"""A stage: its config and its inputs in, one artifact folder out. Nothing here prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vlcli.errors import DataError
from vlcli.progress import Progress, Silent
from vlcli.recipe.schema import Recipe, Stage
from vlcli.recipe.wiring import find_place

CACHE = ".columns"
"""Name of a run's folder for examples in columns."""


@dataclass
class StageContext:
    """What the runner hands a stage.

    Attributes:
        recipe: the whole recipe, resolved.
        name: this stage's name in it.
        config: its section, of the class that belongs to its kind.
        folder: where it writes; exists; may hold what a killed run left, to resume from.
        inputs: artifact folder of every stage before it, by name (finished ones only).
        root: the data root, resolved (for a stage name: that stage's artifact folder).
        seed: the run's seed.
        device: ``cpu``, ``cuda``, ``cuda:1``, ``mps`` or ``auto``.
        progress: where to report.
        resume: whether to go on from what ``folder`` holds.
        kinds: stage kind by name, for finding features.
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
        """The run's folder for examples in columns, which its stages share."""
        return self.folder.parent / CACHE

    def sources(self) -> list[Path]:
        """The artifact folders ``from`` names: stages of the recipe, else folders on disk."""
        return [self.resolve(name) for name in self.config.source]

    def resolve(self, name: str) -> Path:
        """A stage's artifact, or a path: here, under the data root, or of a hub name in its local cache.

        Raises:
            DataError: neither.
        """
        if name in self.inputs:
            return self.inputs[name]
        path = find_place(name, self.root)
        if path is not None:
            return path
        hint = f"stages before this one: {', '.join(self.inputs) or 'none'}"
        raise DataError("There is no such stage or folder.", where=f"stages.{self.name}", got=name, hint=hint)

    def feature_files(self, named: list[str]) -> list[Path]:
        """The stores a training stage reads: those it names, else those of every extract stage before it."""
        chosen = named or [name for name, kind in self.kinds.items() if kind == "extract" and name in self.inputs]
        paths = [self.resolve(name) for name in chosen]
        return [path / "features.h5" if path.is_dir() else path for path in paths]


@dataclass
class StageResult:
    """What a stage tells the runner, which writes it to ``stage.json``.

    Attributes:
        metrics: numbers worth comparing.
        files: what it made, by role, relative to its folder.
        notes: lines for the user.
        facts: anything else worth keeping (counts, load report).
    """

    metrics: dict[str, float] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)


RunStage = Callable[[StageContext], StageResult]
