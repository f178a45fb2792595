"""Writes a whole shapes world beside its target, then renames it."""

import json
import os
import shutil
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from vlcli.data.shapes.coco import shared_pictures, write_coco, write_json, write_karpathy
from vlcli.data.shapes.config import VERSION, ShapesConfig
from vlcli.data.shapes.folders import write_ade20k, write_imagenet
from vlcli.data.shapes.refcoco import write_refcoco
from vlcli.data.shapes.render import draw_pictures
from vlcli.data.shapes.snli_ve import write_snli_ve
from vlcli.data.shapes.statements import write_nlvr2
from vlcli.data.shapes.vist import write_vist
from vlcli.data.shapes.vqa import write_gqa, write_vqa
from vlcli.data.world import World
from vlcli.errors import DataError, VlcliError
from vlcli.files import sync_file
from vlcli.progress import Progress

MARK = "shapes.json"
HINT = "vlcli data make shapes "
SHARED = {
    "coco": write_coco,
    "vqa": write_vqa,
    "gqa": write_gqa,
    "snli-ve": write_snli_ve,
    "refcoco": write_refcoco,
    "karpathy": write_karpathy,
}
ALONE = {"nlvr2": write_nlvr2, "vist": write_vist, "imagenet": write_imagenet, "ade20k": write_ade20k}


def make_shapes(folder: Path, config: ShapesConfig, progress: Progress, workers: int = 1) -> dict[str, int]:
    """Generate a world; every byte follows from ``config``, whatever ``workers`` is.

    ``folder`` is absent, empty, or an earlier shapes world, which is replaced; DataError: something else is there.
    """
    _check_target(folder)
    beside = folder.parent / f".{folder.name}.{os.getpid()}.partial"
    try:
        beside.mkdir(parents=True)
        counts = _write(beside, config, progress, workers)
        _replace(beside, folder)
    except OSError as error:
        what, hint = "the shapes world could not be written", "free some space or choose another folder"
        raise VlcliError(what, where=str(folder), got=error.strerror or str(error), hint=hint) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return counts


def describe(folder: Path) -> dict[str, int]:
    """Return the counts that ``make_shapes`` returned for a world."""
    return dict(_read_mark(Path(folder))["counts"])


def config_of(folder: Path) -> ShapesConfig:
    """Return the configuration of a world; DataError: none that is finished, or one of another version."""
    mark = _read_mark(Path(folder))
    if mark.get("version") != VERSION:
        what, got = "this shapes world is of another version", f"version {mark.get('version')}"
        raise DataError(what, where=str(folder), got=got, expected=f"version {VERSION}", hint=HINT + str(folder))
    return ShapesConfig(**mark["config"])


def _read_mark(folder: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((folder / MARK).read_text()))
    except (OSError, ValueError, TypeError) as error:
        what, expected, hint = "there is no finished shapes world here", f"a folder with {MARK}", HINT + str(folder)
        raise DataError(what, where=str(folder), got=str(error), expected=expected, hint=hint) from error


def _check_target(folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else [folder.name] * folder.exists()
    if names and not (folder / MARK).is_file():
        what, got = "the target holds something that is not a shapes world", ", ".join(names[:3])
        expected = f"an absent or empty folder, or one with {MARK}"
        hint = "choose another folder, or empty this one yourself"
        raise DataError(what, where=str(folder), got=got, expected=expected, hint=hint)


def _write(root: Path, config: ShapesConfig, progress: Progress, workers: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    if shared := [SHARED[part] for part in config.parts if part in SHARED]:
        pictures = shared_pictures(config)
        everything = [*chain.from_iterable(pictures.values())]
        draw_pictures(root / "images", everything, progress, "images", workers)
        counts["pictures"] = len(everything)
        for write in shared:
            counts |= write(root, config, pictures)
    for part in config.parts:
        if part in ALONE:
            counts |= ALONE[part](root, config, progress, workers)
    write_json(root / MARK, {"version": VERSION, "config": config.as_dict(), "counts": counts})
    sync_file(root / MARK)
    return counts


def _replace(beside: Path, folder: Path) -> None:
    old = beside.with_suffix(".old")
    if folder.exists():
        folder.replace(old)
    try:
        beside.replace(folder)
    except OSError:
        if old.exists():
            old.replace(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class Shapes(ShapesConfig, World):
    """Pictures of coloured shapes with annotations in every benchmark's own format."""

    def make(self, folder: Path, progress: Progress, workers: int) -> dict[str, int]:
        return make_shapes(folder, self, progress, workers)
