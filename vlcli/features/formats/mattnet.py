"""Detections of MAttNet's Mask R-CNN (lichengunc/MAttNet ``tools/run_detect.py``): boxes without features.

A JSON list of ``image_id``, ``box`` (x, y, width, height with the last pixel counted), ``category_id``, ``score``,
``det_id``. The store that is made has features of width 0; features at these boxes are what an extract stage makes
whose ``boxes`` name the JSON file or this store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vlcli.errors import DataError
from vlcli.features.formats.base import Entry, Format, Options, Pictures, named_size, size_facts
from vlcli.features.schema import Record


class Mattnet(Format):
    """MAttNet's list of detections."""

    name = "mattnet"
    about = "MAttNet's detections, a JSON list: boxes with scores, no features"
    source = "a JSON file"
    provenance: ClassVar = {"extractor": "imported: mattnet", "boxes": "detected"}

    def facts(self, source: Path, options: Options) -> dict[str, Any]:
        """Where the sizes come from."""
        return size_facts(options)

    def entries(self, source: Path, options: Options) -> Iterator[Entry]:
        """The images in the order in which they first appear.

        Raises:
            DataError: the file is no such list.
        """
        for name, rows in _by_image(source).items():
            own = options.pictures.find(name) if options.pictures else None
            yield Entry(own or name, f"{source}: image {name}", partial(_decode, own or name, rows, options.pictures))


def _by_image(source: Path) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    try:
        for row in json.loads(source.read_text(encoding="utf-8")):
            rows.setdefault(str(row["image_id"]), []).append(row)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            "the file is no list of detections",
            where=str(source),
            got=f"{type(error).__name__}: {error}",
            expected="a JSON list of objects with image_id and box",
        ) from None
    return rows


def _decode(name: str, rows: list[dict[str, Any]], pictures: Pictures | None) -> Record:
    x, y, width, height = np.array([row["box"] for row in rows], np.float32).reshape(-1, 4).T
    boxes = np.stack([x, y, x + width - 1, y + height - 1], 1)
    size = named_size(name, pictures, (float(boxes[:, 2].max()) + 1, float(boxes[:, 3].max()) + 1))
    return Record(
        id=name,
        features=np.zeros((len(rows), 0), np.float32),
        boxes=boxes,
        size=size,
        scores=_column(rows, "score", np.float32),
        classes=_column(rows, "category_id", np.int32),
        box_ids=_column(rows, "det_id", np.str_),
    )


def _column(rows: list[dict[str, Any]], key: str, dtype: Any) -> np.ndarray | None:
    return np.array([row[key] for row in rows], dtype) if all(key in row for row in rows) else None


MATTNET = Mattnet()
