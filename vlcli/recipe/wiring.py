"""Who waits for whom: the inputs of every stage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vlcli.files import cached_repository
from vlcli.recipe.schema import Draw, Evaluate, Recipe, Stage, Training

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
FILES = (".h5", ".pth", ".pt", ".bin", ".safetensors")
"""What the names of stores and weights end in."""
WORLD = "world"
"""Where a make stage puts the data root, inside its folder."""


@dataclass(frozen=True)
class Inputs:
    """What one stage builds on.

    Attributes:
        named: stages it names in ``from``, ``features`` or ``root``: without them it cannot run.
        implied: extract stages before it whose stores it reads because it names none; skipped ones are done without.
        paths: files, folders and hub names it names outside the recipe, as written.
    """

    named: tuple[str, ...] = ()
    implied: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def stages(self) -> tuple[str, ...]:
        """Every stage it waits for."""
        return tuple(dict.fromkeys((*self.named, *self.implied)))


def names_a_place(value: str) -> bool:
    """Whether a word of ``from`` or ``features`` that is no stage can only be a file, a folder or a hub name."""
    return "/" in value or "\\" in value or bool(Path(value).suffix) or Path(value).expanduser().exists()


def find_place(value: str, root: Path) -> Path | None:
    """Where such a word leads: here, under the data root, or in the local cache of the Hugging Face hub.

    Nothing is downloaded.
    """
    path = Path(value).expanduser()
    found = next((place for place in (path, root / path) if place.exists()), None)
    return found if found is not None or not is_hub_name(value) else cached_repository(value)


def is_hub_name(value: str) -> bool:
    """Whether a word may be the name of a model on the Hugging Face hub: ``OWNER/NAME``, no file's name."""
    return bool(_HUB_NAME.fullmatch(value)) and Path(value).suffix not in FILES


def missing_places(recipe: Recipe, stage: Stage, paths: tuple[str, ...], artifacts: Mapping[str, Path]) -> list[str]:
    """Which of the words ``paths`` of a stage lead nowhere."""
    root = root_folder(recipe, stage, artifacts)
    return [value for value in paths if find_place(value, root) is None]


def inputs(recipe: Recipe) -> dict[str, Inputs]:
    """The inputs of every stage of a checked recipe, in the recipe's order."""
    found: dict[str, Inputs] = {}
    for name, stage in recipe.stages.items():
        found[name] = _inputs(recipe, stage, list(found))
    return found


def root_stage(recipe: Recipe, stage: Stage, earlier: list[str] | Mapping[str, object]) -> str | None:
    """The stage whose artifact is this stage's data root, where ``root`` names one."""
    root = stage.root or recipe.root
    return root if root in earlier else None


def root_folder(recipe: Recipe, stage: Stage, artifacts: Mapping[str, Path]) -> Path:
    """The data root of a stage: the artifact of the stage that ``root`` names, else a folder relative to here."""
    root = stage.root or recipe.root
    if root not in artifacts:
        return Path(root).expanduser()
    return artifacts[root] / WORLD if recipe.stages[root].kind == "make" else artifacts[root]


def ancestors(graph: Mapping[str, Inputs], names: list[str]) -> set[str]:
    """``names`` and every stage they build on."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name].stages
    return found


def _inputs(recipe: Recipe, stage: Stage, earlier: list[str]) -> Inputs:
    features: list[str] = getattr(stage, "features", [])
    root = root_stage(recipe, stage, earlier)
    named = [n for n in [*stage.source, *features] if n in earlier] + ([root] if root else [])
    paths = [n for n in [*stage.source, *features] if n not in earlier]
    implied = []
    reads = isinstance(stage, Training | Evaluate) or (isinstance(stage, Draw) and bool(stage.source))
    if reads and not features:
        implied = [n for n in earlier if recipe.stages[n].kind == "extract" and n not in named]
    return Inputs(tuple(dict.fromkeys(named)), tuple(implied), tuple(paths))
