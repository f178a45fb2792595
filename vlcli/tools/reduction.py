"""Reduces the sizes of a recipe for a rehearsal, as overrides: width, steps, batches, worlds; nothing else changes."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import torch

from vlcli import registry
from vlcli.recipe.components import Use
from vlcli.recipe.load import load
from vlcli.recipe.locate import Resolved
from vlcli.recipe.schema import Make, Stage, Training
from vlcli.recipe.validate import uses
from vlcli.tools.counting import training_stages

# Width of models: 12, 16, 8, 6, 4 and 3 heads divide it. Depth, heads, patches and regions are as they were.
WIDTH = 48
EPOCHS, STEPS, BATCH, TAKEN = 2, 4, 8, 6
# Side in pixels of pictures of a convolutional network that reads larger ones: 7 cells of 32 pixels, and one more
SIDE = 256
EXPORT = "rehearsed-export"
# The largest value of a component's parameter, by kind and name; of one that is not set, its default counts
SIZES: Mapping[str, Mapping[str, Any]] = {
    "models": {"hidden": WIDTH, "text_hidden": WIDTH, "intermediate": 4 * WIDTH},
    "objectives": {"queue": 64},
    "extractors": {"short": 96, "long": 160},
    "tasks": {"short": 160, "stride": 107},
    "transforms": {"shorts": [64], "longest": 96, "before_crop": [64], "crop_sides": [48, 64]},
    "worlds": {
        "images": 160,
        "albums": 8,
        "imagenet": 32,
        "ade20k": 8,
        "nlvr2_train": 24,
        "nlvr2_pool": 0,
        "nlvr2_dev": 12,
        "nlvr2_test": 12,
    },
}
STAGE_SIZES = {"workers": 0, "batch_size": BATCH, "accumulate": 1, "steps": STEPS}
STAGE_SIZES |= dict.fromkeys(("epochs", "keep", "last"), EPOCHS)
STAGE_SIZES |= dict.fromkeys(("evaluate_every", "save_every"), STEPS // 2)
"""The largest value of a stage's key."""


@dataclass(frozen=True)
class Reduced:
    """A recipe, its reduction, and the overrides (``words``) that reduce it."""

    full: Resolved
    small: Resolved
    words: list[str]

    @property
    def told(self) -> list[str]:
        stages: dict[str, list[str]] = {}
        for word in self.words:
            path, equals, value = word.partition("=")
            first, _, rest = path.partition(".")
            name, _, key = rest.partition(".") if first == "stages" else ("", "", path)
            stages.setdefault(f"{key or 'added'}{equals}{value}", []).append(name)
        return [change if names == [""] else f"{change} ({', '.join(names)})" for change, names in stages.items()]


def reduced(full: Resolved, overrides: Sequence[str] = (), device: str | None = None, trust: bool = False) -> Reduced:
    """Returns a recipe in small: narrow models, few steps, small batches and worlds; nothing else is changed.

    A recipe that trains and does not export gets a stage that exports its last model. On a ``device`` that is no GPU
    half precision is not kept. ``trust`` runs the files of ``plugins:``.
    """
    made = {name: stage.world for name, stage in full.stages.items() if isinstance(stage, Make)}
    worlds = [Use("worlds", world, ("stages", name, "world"), {}) for name, world in made.items()]
    changes = {name: change for use in (*uses(full), *worlds) for name, change in _of_component(use)}
    on_gpu = torch.cuda.is_available() and not (device or "").startswith("cpu")
    for name, stage in full.stages.items():
        changes |= {("stages", name, *path): value for path, value in _of_stage(stage)}
        if not on_gpu and getattr(stage, "precision", "") == "fp16":
            changes["stages", name, "precision"] = "float32"
    root = Path(full.recipe.root)
    if root.is_absolute():
        changes["root",] = root.name
    trained = training_stages(full)
    if trained and not full.of_kind("export"):
        changes["stages", EXPORT] = {"kind": "export", "from": trained[-1]}
    words = [f"{_as_written(full.document.value, path)}={json.dumps(value)}" for path, value in changes.items()]
    return Reduced(full, load(full.reference, [*overrides, *words], trust=trust), words)


def side(pixels: int) -> int:
    """Returns the reduced side of a picture in pixels: 64 for 224, and patches of 16 or 32 still fit into it."""
    return min(pixels, max(64, round(pixels * 2 / 7 / 32) * 32))


def _of_component(use: Use) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if use.kind == "datasets" and "take" in use.spec and "." not in str(use.spec["take"]):  # a share is small of few
        first, *seed = re.findall(r"\b\d+\b", str(use.spec["take"]))
        yield (*use.path, "take"), ":".join([str(use.spec["take"]).split(":")[0], str(min(TAKEN, int(first))), *seed])
    known = registry.parameters(registry.load(use.kind, use.spec["name"])) if use.kind in SIZES else {}
    usual = known["image_size"].default if "image_size" in known else None
    pixels: Any = use.spec.get("image_size", usual)
    reads_pixels = pixels is not None and use.spec.get("image", "pixels") == "pixels"
    if reads_pixels and "patch" in known and "window" not in known:
        yield (*use.path, "image_size"), side(int(pixels))
    if use.kind == "models" and isinstance(usual, int) and usual > SIDE and "patch" not in known:
        yield (*use.path, "image_size"), min(SIDE, int(pixels))
    for name, most in SIZES.get(use.kind, {}).items():
        if name in known:
            value = use.spec.get(name, None if known[name].required else known[name].default)
            unset = value is None or (value == 0 and name not in use.spec)
            if unset and name == "intermediate":  # follows the width
                continue
            if unset or isinstance(value, list | tuple) or value > most:
                yield (*use.path, name), most


def _of_stage(stage: Stage) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for key, most in STAGE_SIZES.items():
        if (getattr(stage, key, None) or 0) > most:
            yield (key,), most
    if not isinstance(stage, Training):
        return
    if stage.schedule.warmup > 1:
        yield ("schedule", "warmup"), 1
    if stage.epochs is None or stage.epochs <= EPOCHS:
        return
    share = EPOCHS / stage.epochs
    for number, spec in enumerate(stage.objectives or []):
        if spec.get("from_epoch"):
            yield ("objectives", number, "from_epoch"), min(EPOCHS - 1, round(share * spec["from_epoch"]))
        if spec.get("until_epoch"):
            yield ("objectives", number, "until_epoch"), ceil(share * spec["until_epoch"])
    for number, step in enumerate(stage.curriculum):
        yield ("curriculum", number, "until_epoch"), ceil(share * step.until_epoch)


def _as_written(document: Any, path: tuple[Any, ...]) -> str:
    # a recipe may write a list of one as the one
    words: list[str] = []
    for key in path:
        if isinstance(key, int) and not isinstance(document, list):
            continue
        words.append(str(key))
        inner = isinstance(document, list) and isinstance(key, int) and key < len(document)
        document = document[key] if inner else document.get(key) if isinstance(document, dict) else None
    return ".".join(words)
