"""Detections of MAttNet's Mask R-CNN (lichengunc/MAttNet ``tools/run_detect.py``): boxes without features.

A JSON list of ``image_id``, ``box`` (x, y, width, height with the last pixel counted), ``category_id``, ``score``,
``det_id``. The store has features of width 0; an extract stage whose ``boxes`` name the JSON file or this store makes
features at these boxes.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vlcli.features.formats.base import ForeignImage, Format, FormatOptions, ImageNames, named_size, size_facts
from vlcli.features.schema import Record
from vlcli.images.boxes import BoxList, read_boxes
from vlcli.images.labels import class_table, ids_used, numbered


class Mattnet(Format):
    """MAttNet's list of detections."""

    name = "mattnet"
    about = "MAttNet's detections, a JSON list: boxes with scores, no features"
    source = "a JSON file"
    provenance: ClassVar = {"extractor": "imported: mattnet", "boxes": "detected"}

    def facts(self, source: Path, options: FormatOptions) -> dict[str, Any]:
        return {**size_facts(options), **class_table(ids_used(read_boxes(source, "mattnet")), {}).provenance()}

    def entries(self, source: Path, options: FormatOptions) -> Iterator[ForeignImage]:
        boxes = read_boxes(source, "mattnet")
        for name, one in numbered(boxes, class_table(ids_used(boxes), {})).items():
            image = (options.pictures.find(name) if options.pictures else None) or name
            yield ForeignImage(image, f"{source}: image {name}", partial(_decode, image, one, options.pictures))


def _decode(name: str, boxes: BoxList, pictures: ImageNames | None) -> Record:
    corner = boxes.boxes[:, 2:].max(0, initial=0) + 1
    return Record(
        id=name,
        features=np.zeros((len(boxes), 0), np.float32),
        boxes=boxes.boxes,
        size=named_size(name, pictures, (float(corner[0]), float(corner[1]))),
        scores=boxes.scores,
        classes=boxes.classes,
        box_ids=boxes.box_ids,
    )
