"""NLVR2: JSON lines, pictures named as NLVR2 names them, and COCO instances of those pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from vlcli.data.shapes.coco import instances
from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.render import draw_pictures
from vlcli.data.shapes.scenes import NoSuchSceneError, PooledScenes
from vlcli.data.shapes.statements import Cell, cell
from vlcli.data.shapes.store import write_json, write_lines
from vlcli.data.shapes.world import Picture, Scene, stream
from vlcli.errors import DataError
from vlcli.progress import Progress


def write_nlvr2(root: Path, config: ShapesConfig, progress: Progress, workers: int) -> dict[str, int]:
    """nlvr2/{train,dev,test1}.json, instances_*.json and images/."""
    wanted = {"train": config.nlvr2_train, "dev": config.nlvr2_dev, "test1": config.nlvr2_test}
    counts = {"nlvr2 pictures": 0, "nlvr2 statements": 0}
    annotation = 1
    for split, examples in wanted.items():
        first, pool = counts["nlvr2 pictures"] + 1, split == "train" and config.nlvr2_pool > 0
        cells, pooled = (_pooled_cells if pool else _cells)(config, split, -(-examples // 4))
        pictures = list(_pictures(split, [made for _, made in cells], first))
        if pool:
            pictures = [
                Picture(number, f"{split}/pool/{split}-pool-{number}.png", scene)
                for number, scene in enumerate(pooled, first)
            ]
        stems = {id(picture.scene): picture.file.rpartition(".")[0] for picture in pictures}
        rows = [row for number, (kind, made) in enumerate(cells) for row in _rows(split, number, kind, made, stems)]
        draw_pictures(root / "nlvr2/images", pictures, progress, f"nlvr2 {split}", workers)
        write_lines(root / f"nlvr2/{split}.json", rows)
        write_json(root / f"nlvr2/instances_{split}.json", instances(config, pictures, annotation))
        annotation += sum(len(picture.drawn) for picture in pictures)
        counts["nlvr2 pictures"] += len(pictures)
        counts["nlvr2 statements"] += len(rows)
    return counts


Cells = tuple[list[tuple[str, Cell]], list[Scene]]
"""Cells with their kinds, and the pool their pictures were picked from."""


def _cells(config: ShapesConfig, split: str, count: int) -> Cells:
    """Kinds in turn, so that their shares are equal to within one cell (in training: as often as they are named)."""
    rng = stream(config, "nlvr2", split)
    return [(kind, cell(kind, rng, config)) for kind in _kinds(config, split, count)], []


def _kinds(config: ShapesConfig, split: str, count: int) -> list[str]:
    kinds = config.statements if split == "train" else tuple(dict.fromkeys(config.statements))
    return [kinds[number % len(kinds)] for number in range(count)]


def _pooled_cells(config: ShapesConfig, split: str, count: int) -> Cells:
    """The same over a pool; what the pool has no picture for is drawn anew."""
    rng = stream(config, "nlvr2", split)
    scenes = PooledScenes(rng, config)
    return [(kind, _pooled_cell(kind, rng, config, scenes)) for kind in _kinds(config, split, count)], scenes.pool


def _pooled_cell(kind: str, rng: Random, config: ShapesConfig, scenes: PooledScenes) -> Cell:
    for _ in range(100):
        with suppress(NoSuchSceneError):
            return cell(kind, rng, config, scenes)
    raise DataError(
        "the pool of pictures is too small for these statements",
        where="shapes.nlvr2_pool",
        got=f"{config.nlvr2_pool} pictures, statements: {kind}",
        hint="raise nlvr2_pool, or set it to 0: each cell then has four pictures of its own",
    )


def _stem(split: str, number: int, pair: int) -> str:
    folder = f"train/{number % 100}" if split == "train" else split
    return f"{folder}/{split}-{number}-{pair}"


def _rows(split: str, number: int, kind: str, made: Cell, stems: dict[int, str]) -> Iterator[dict[str, object]]:
    """``stems``: by the identity of a scene, its file without extension. Pooled pictures are named in ``img0``."""
    for pair, scenes in enumerate(made.pairs):
        left, right = (stems[id(scene)] for scene in scenes)
        for index, text in enumerate(made.texts):
            label = str(pair == index)
            row: dict[str, object] = {
                "validation": {"0": label},
                "sentence": text,
                "left_url": f"images/{left}.png",
                "writer": "0",
                "label": label,
                "right_url": f"images/{right}.png",
                "synset": "shape",
                "query": f"shapes{number}",
                "identifier": f"{split}-{number}-{pair}-{index}",
                "kind": kind,
            }
            if "/pool/" in left:
                row |= {"img0": left.rpartition("/")[2], "img1": right.rpartition("/")[2]}
            row |= {"directory": number % 100} if split == "train" else {"extra_validations": {"1": label}}
            yield row


def _pictures(split: str, cells: list[Cell], first: int) -> Iterator[Picture]:
    for number, made in enumerate(cells):
        for pair, scenes in enumerate(made.pairs):
            for side, scene in enumerate(scenes):
                yield Picture(first, f"{_stem(split, number, pair)}-img{side}.png", scene)
                first += 1
