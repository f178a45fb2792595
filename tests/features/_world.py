"""Records and images that the tests of the store share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from vlcli.detection.extractor import Extractor, Preparation, Prepared, to_record
from vlcli.features import Record
from vlcli.images.boxes import BoxList


def make_record(name: str, seed: int, rows: int = 5, dim: int = 8, **fields) -> Record:
    rng = np.random.default_rng(seed)
    corners = np.sort(rng.random((rows, 2, 2)) * [60, 40], axis=1).reshape(rows, 4)
    return Record(name, rng.normal(size=(rows, dim)), corners, (40, 60), **fields)


def full_record(name: str, seed: int, rows: int = 5) -> Record:
    rng = np.random.default_rng(seed)
    return make_record(
        name,
        seed,
        rows,
        scores=rng.random(rows),
        classes=rng.integers(0, 9, rows),
        class_scores=rng.random(rows),
        attributes=rng.integers(0, 9, rows),
        attribute_scores=rng.random(rows),
        class_probs=rng.random((rows, 9)),
        attribute_probs=rng.random((rows, 4)),
        box_ids=np.array([f"{name}/é{i}" for i in range(rows)]),
    )


def same(left: Record, right: Record) -> bool:
    a, b = left.arrays(), right.arrays()
    return (left.id, left.size, list(a)) == (right.id, right.size, list(b)) and all(
        a[name].dtype.kind == b[name].dtype.kind and np.array_equal(a[name], b[name]) for name in a
    )


class MeanColour(Extractor):
    """Mean colour of each box: a feature one can compute by hand."""

    def __init__(self, *, boxes: str = "given-or-grid", short: int = 16) -> None:
        self.preparation = Preparation(short=short, long=64, boxes=boxes, grid=(2, 2))
        self.dim = 3
        self.trained_on = "nothing"

    def extract(self, batch: list[Prepared]) -> list[Record]:
        return [to_record(item, np.stack([_mean(item.pixels, box) for box in item.scaled_boxes()])) for item in batch]


def _mean(pixels: torch.Tensor, box: torch.Tensor) -> np.ndarray:
    x1, y1, x2, y2 = box.round().int().tolist()
    return pixels[:, y1 : max(y2, y1 + 1), x1 : max(x2, x1 + 1)].float().mean((1, 2)).numpy()


def make_images(folder: Path, count: int, seed: int = 0) -> list[tuple[str, Path]]:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    images = []
    for number in range(count):
        height, width = [(20, 30), (30, 20), (24, 24)][number % 3]
        path = folder / f"im{number:03d}.png"
        Image.fromarray(rng.integers(0, 255, (height, width, 3), dtype=np.uint8)).save(path)
        images.append((path.stem, path))
    return images


def one_box(box: list[float], size: tuple[int, int] | None = None) -> BoxList:
    return BoxList(np.array([box], dtype=np.float32), size=size)
