"""NLVR2: JSON lines, pictures named as NLVR2 names them, and COCO instances of those pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vlcli.data.shapes.coco import instances
from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.render import draw_pictures
from vlcli.data.shapes.statements import Cell, cell
from vlcli.data.shapes.store import write_json, write_lines
from vlcli.data.shapes.world import Picture, stream
from vlcli.progress import Progress


def write_nlvr2(root: Path, config: ShapesConfig, progress: Progress, workers: int) -> dict[str, int]:
    """nlvr2/{train,dev,test1}.json, instances_*.json and images/."""
    wanted = {"train": config.nlvr2_train, "dev": config.nlvr2_dev, "test1": config.nlvr2_test}
    counts = {"nlvr2 pictures": 0, "nlvr2 statements": 0}
    annotation = 1
    for split, examples in wanted.items():
        cells = _cells(config, split, -(-examples // 4))
        rows = [row for number, (kind, made) in enumerate(cells) for row in _rows(split, number, kind, made)]
        pictures = list(_pictures(split, [made for _, made in cells], counts["nlvr2 pictures"] + 1))
        draw_pictures(root / "nlvr2/images", pictures, progress, f"nlvr2 {split}", workers)
        write_lines(root / f"nlvr2/{split}.json", rows)
        write_json(root / f"nlvr2/instances_{split}.json", instances(config, pictures, annotation))
        annotation += sum(len(picture.drawn) for picture in pictures)
        counts["nlvr2 pictures"] += len(pictures)
        counts["nlvr2 statements"] += len(rows)
    return counts


def _cells(config: ShapesConfig, split: str, count: int) -> list[tuple[str, Cell]]:
    """Kinds in turn, so that their shares are equal to within one cell."""
    rng = stream(config, "nlvr2", split)
    kinds = [config.statements[number % len(config.statements)] for number in range(count)]
    return [(kind, cell(kind, rng, config)) for kind in kinds]


def _stem(split: str, number: int, pair: int) -> str:
    folder = f"train/{number % 100}" if split == "train" else split
    return f"{folder}/{split}-{number}-{pair}"


def _rows(split: str, number: int, kind: str, made: Cell) -> Iterator[dict[str, object]]:
    for pair in range(2):
        for index, text in enumerate(made.texts):
            label = str(pair == index)
            stem = _stem(split, number, pair)
            row: dict[str, object] = {
                "validation": {"0": label},
                "sentence": text,
                "left_url": f"images/{stem}-img0.png",
                "writer": "0",
                "label": label,
                "right_url": f"images/{stem}-img1.png",
                "synset": "shape",
                "query": f"shapes{number}",
                "identifier": f"{split}-{number}-{pair}-{index}",
                "kind": kind,
            }
            row |= {"directory": number % 100} if split == "train" else {"extra_validations": {"1": label}}
            yield row


def _pictures(split: str, cells: list[Cell], first: int) -> Iterator[Picture]:
    for number, made in enumerate(cells):
        for pair, scenes in enumerate(made.pairs):
            for side, scene in enumerate(scenes):
                yield Picture(first, f"{_stem(split, number, pair)}-img{side}.png", scene)
                first += 1
