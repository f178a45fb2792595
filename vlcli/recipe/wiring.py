"""Finds the inputs of every stage: stages, files, folders and hub names."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vlcli.files import cached_repository
from vlcli.recipe.schema import Draw, Evaluate, Recipe, Stage, Training

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
FILES = (".h5", ".pth", ".pt", ".bin", ".safetensors")
"""Suffixes of stores and weights."""
# Folder of the data root in the folder of a make stage
WORLD = "world"


@dataclass(frozen=True)
class Inputs:
    """The inputs of one stage.

    Attributes:
        named: stages in ``from``, ``features`` or ``root``, without which it cannot run.
        implied: extract stages before it whose stores it reads because it names none; skipped ones are left out.
        paths: files, folders and hub names outside the recipe, as written.
    """

    named: tuple[str, ...] = ()
    implied: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def stages(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.named, *self.implied)))


def names_a_place(value: str) -> bool:
    """Returns True if a word of ``from`` or ``features`` that is no stage is a file, a folder or a hub name."""
    return "/" in value or "\\" in value or bool(Path(value).suffix) or Path(value).expanduser().exists()


def find_place(value: str, root: Path) -> Path | None:
    """Returns the path of such a word: here, under the data root, or in the hub's local cache; downloads nothing."""
    named = Path(value).expanduser()
    if path := next((path for path in (named, root / named) if path.exists()), None):
        return path
    return cached_repository(value) if is_hub_name(value) else None


def find_below(value: str, root: Path) -> Path | None:
    """Returns the path of a file that a component names: under the data root, else here; None: there is none."""
    named = Path(value).expanduser()
    return next((path for path in (root / named, named) if path.exists()), None)


def is_hub_name(value: str) -> bool:
    """Returns True for ``OWNER/NAME``, which may be a model on the Hugging Face hub."""
    return bool(_HUB_NAME.fullmatch(value)) and Path(value).suffix not in FILES


def missing_places(recipe: Recipe, stage: Stage, paths: tuple[str, ...], artifacts: Mapping[str, Path]) -> list[str]:
    """Returns those words ``paths`` of a stage that no file, folder or cached repository has."""
    return [value for value in paths if find_place(value, root_folder(recipe, stage, artifacts)) is None]


def inputs(recipe: Recipe) -> dict[str, Inputs]:
    """Returns the inputs of every stage of a checked recipe, in the recipe's order."""
    graph: dict[str, Inputs] = {}
    for name, stage in recipe.stages.items():
        features: list[str] = getattr(stage, "features", [])
        root = root_stage(recipe, stage, graph)
        words = [*stage.source, *features]
        named = dict.fromkeys([word for word in words if word in graph] + ([root] if root else []))
        reads = isinstance(stage, Training | Evaluate) or (isinstance(stage, Draw) and bool(stage.source))
        stores = [other for other in graph if recipe.stages[other].kind == "extract" and other not in named]
        paths = tuple(word for word in words if word not in graph)
        graph[name] = Inputs(tuple(named), tuple(stores) if reads and not features else (), paths)
    return graph


def root_stage(recipe: Recipe, stage: Stage, earlier: list[str] | Mapping[str, object]) -> str | None:
    """Returns the stage whose artifact is this stage's data root; None if ``root`` is a folder."""
    root = stage.root or recipe.root
    return root if root in earlier else None


def root_folder(recipe: Recipe, stage: Stage, artifacts: Mapping[str, Path]) -> Path:
    """Returns the data root of a stage: the artifact of the stage that ``root`` names, else a folder."""
    root = stage.root or recipe.root
    if root not in artifacts:
        return Path(root).expanduser()
    return artifacts[root] / WORLD if recipe.stages[root].kind == "make" else artifacts[root]


def ancestors(graph: Mapping[str, Inputs], names: Iterable[str]) -> set[str]:
    """Returns ``names`` and every stage they build on."""
    every: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in every:
            every.add(name)
            waiting += graph[name].stages
    return every
