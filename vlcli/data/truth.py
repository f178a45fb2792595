"""Makes COCO annotations, against which detections are scored, of a reader's boxes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Truth:
    """Annotations that detections are scored against.

    Attributes:
        document: ``images``, ``annotations`` and ``categories`` of a COCO instances file, with its own ids.
        numbers: the file's id of an image, by image id.
    """

    document: dict[str, list[dict[str, Any]]]
    numbers: dict[str, Any] = field(default_factory=dict)


def truth_of(reader: Any) -> Truth:
    """Make COCO annotations of a reader's boxes, with its image ids."""
    ids, boxes = reader.class_ids(), reader.boxes()
    names = dict.fromkeys(name for example in reader.examples() for name in example.images)
    notes = [
        coco_annotation(name, None if boxes[name].classes is None else ids[int(boxes[name].classes[row])], box)
        for name in names
        if name in boxes
        for row, box in enumerate(boxes[name].boxes.tolist())
    ]
    kinds = [{"id": number, "name": name} for number, name in zip(ids, reader.class_names(), strict=True)]
    images = [{"id": name, "file_name": reader.locate(name).name} for name in names]
    return Truth({"images": images, "annotations": notes, "categories": kinds}, {name: name for name in names})


def coco_annotation(image: Any, category: int | None, box: Sequence[float]) -> dict[str, Any]:
    """Return COCO's annotation of a box x1 y1 x2 y2."""
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    annotation = {"image_id": image, "bbox": [left, top, width, height], "area": width * height, "iscrowd": 0}
    return annotation if category is None else {**annotation, "category_id": category}
