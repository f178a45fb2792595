"""Labelled boxes as public data sets and tools write them: init reads all of them, in pixels and in their parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.starter.layouts import photos, rows_of, write
from tests.starter.test_unclear import seen
from vlcli.builders.readers import build_reader

SIZE = (24, 18)  # of the pictures of photos()
KINDS = ("cow", "bird")


def open_images(root: Path) -> None:
    columns = ["ImageID", "Source", "LabelName", "Confidence", "XMin", "XMax", "YMin", "YMax"]
    for part in ("train", "validation", "test"):
        names = photos(root, [f"{part}/{part[:2]}{n:014x}.jpg" for n in range(24)])
        rows = [[Path(n).stem, "xclick", kind, 1, 0.1, 0.5, 0.5, 1] for n in names for kind in KINDS]
        rows_of(root, f"{'oidv6-' * (part == 'train')}{part}-annotations-bbox.csv", columns, rows)


def automl(root: Path) -> None:
    names = photos(root, [f"images/{n}.jpg" for n in range(72)])
    parts = ("TRAIN", "VALIDATION", "TEST")
    lines = [f"{parts[n % 3]},gs://b/{p},{k},0.1,0.5,,,0.5,1,," for n, p in enumerate(names) for k in KINDS]
    write(root, "import.csv", "\n".join(lines))


def roboflow(root: Path) -> None:
    header = ["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"]
    for part in ("train", "valid", "test"):
        names = [Path(n).name for n in photos(root, [f"{part}/{n}_jpg.rf.{part}.jpg" for n in range(24)])]
        rows_of(
            root,
            f"{part}/_annotations.csv",
            header,
            [[n, *SIZE, kind, 2.4, 9, 12, 18] for n in names for kind in KINDS],
        )


@pytest.mark.parametrize("make", [open_images, automl, roboflow])
def test_boxes_of_a_public_layout_are_read_in_pixels(make, tmp_path):
    make(tmp_path)
    plan = seen(tmp_path)
    assert plan.goal == "detection"
    assert {part: one.examples for part, one in plan.parts.items()} == dict.fromkeys(
        ("train", "validation", "test"), 24
    )
    reader = build_reader({**plan.source.entry, **plan.parts["train"].options}, tmp_path)
    boxes = next(iter(reader.boxes().values()))
    np.testing.assert_allclose(boxes.boxes[0] / [*SIZE, *SIZE], [0.1, 0.5, 0.5, 1], atol=1e-4)
    assert [reader.class_names()[int(one)] for one in boxes.classes] == list(KINDS)
