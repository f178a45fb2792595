"""Annotations that detections are scored against, in COCO's terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Truth:
    """What detections are scored against, in COCO's terms.

    Attributes:
        document: ``images``, ``annotations`` and ``categories`` of a COCO instances file, with its own ids.
        numbers: the file's id of an image, by image id.
    """

    document: dict[str, list[dict[str, Any]]]
    numbers: dict[str, Any] = field(default_factory=dict)


def truth_of(reader: Any) -> Truth:
    """What a reader's boxes say in COCO's terms, its pictures numbered by their ids."""
    ids, given = reader.class_ids(), reader.boxes()
    names = dict.fromkeys(name for example in reader.examples() for name in example.images)
    notes = [
        coco_annotation(name, None if found.classes is None else ids[int(found.classes[row])], box)
        for name in names
        if (found := given.get(name)) is not None
        for row, box in enumerate(found.boxes.tolist())
    ]
    kinds = [{"id": number, "name": name} for number, name in zip(ids, reader.class_names(), strict=True)]
    images = [{"id": name, "file_name": reader.locate(name).name} for name in names]
    return Truth({"images": images, "annotations": notes, "categories": kinds}, {name: name for name in names})


def coco_annotation(image: Any, category: int | None, box: Sequence[float]) -> dict[str, Any]:
    """A box x1 y1 x2 y2 as COCO annotates it."""
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    found = {"image_id": image, "bbox": [left, top, width, height], "area": width * height, "iscrowd": 0}
    return found if category is None else {**found, "category_id": category}
