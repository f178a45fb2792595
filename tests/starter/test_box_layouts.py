"""Labelled boxes as public data sets and tools write them: init reads all of them, in pixels and in their parts."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.starter.layouts import photos, rows_of, write
from tests.starter.test_unclear import seen
from vlcli.builders.readers import build_reader
from vlcli.errors import DataError

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


def texts(root: Path, pictures: str, labels: str, parts: list[str], text: str) -> None:
    """A text for each picture; ``PART`` in the folders is the part."""
    for part in parts:
        names = photos(root, [f"{pictures}/{part[:2]}{n:04}.png".replace("PART", part) for n in range(24)])
        for name in names:
            write(root, f"{labels}/{Path(name).stem}.txt".replace("PART", part), text)


KITTI = """Cow 0.00 0 -1.58 2.40 9.00 12.00 18.00 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59
DontCare -1 -1 -10 3.4 7.9 20.1 17.3 -1 -1 -1 -1000 -1000 -1000 -10
"""


def kitti(root: Path) -> None:
    photos(root, [f"{home}/image_2/{n:06}.png" for home in ("training", "testing") for n in range(72)])
    photos(root, [f"training/image_3/{n:06}.png" for n in range(72)])
    for n in range(72):
        write(root, f"training/label_2/{n:06}.txt", KITTI)


VISDRONE = "2,9,10,9,1,4,0,0\n20,6,4,2,0,0,0,0\n1,6,4,2,1,1,0,1\n"
DOTA = """imagesource:GoogleEarth
gsd:0.146
2.4 9.0 12 9.0 12 18 2.4 18 cow 0
5.0 6 9 6 9 8 5 8 bird 1
1 1 9 1 9 8 1 8 bird 0
"""


def wider_face(root: Path) -> None:
    for part in ("train", "val"):
        names = photos(root, [f"WIDER_{part}/images/0--Parade/{part}_{n}.jpg" for n in range(24)])
        rows = "2\n2 9 10 9 0 0 0 0 0 0 \n20 6 3 3 2 0 0 1 2 0 \n"
        lines = [f"0--Parade/{Path(name).name}\n{rows}" for name in names] + [
            "0--Parade/none.jpg\n0\n0 0 0 0 0 0 0 0 0 0 \n"
        ]
        write(root, f"wider_face_split/wider_face_{part}_bbx_gt.txt", "".join(lines))


def crowdhuman(root: Path) -> None:
    for part in ("train", "val"):
        names = photos(root, [f"Images/{n},{part}8fa.jpg" for n in range(24)])
        person = {
            "tag": "person",
            "hbox": [5, 6, 5, 5],
            "fbox": [2, 9, 10, 9],
            "vbox": [3, 9, 4, 9],
            "extra": {"box_id": 0},
        }
        mask = {"tag": "mask", "fbox": [2, 2, 5, 5], "extra": {"ignore": 1}}
        rows = [json.dumps({"ID": Path(name).stem, "gtboxes": [person, mask]}) for name in names]
        write(root, f"annotation_{part}.odgt", "\n".join(rows))


TEXTS = {
    "KITTI": (kitti, ["Cow"], 1),
    "VisDrone": (partial(texts, pictures="VisDrone-PART/images", labels="VisDrone-PART/annotations", text=VISDRONE,
                         parts=["train", "val", "test-dev"]), None, 10),
    "DOTA": (partial(texts, pictures="PART/images", labels="PART/labelTxt", text=DOTA, parts=["train", "val"]),
             ["bird", "cow"], 1),
    "WIDER FACE": (wider_face, ["face"], 1),
    "CrowdHuman": (crowdhuman, ["person"], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_boxes_are_read_in_their_parts_and_boxes_to_be_ignored_are_not_learnt(name, tmp_path):
    make, classes, ignored = TEXTS[name]
    make(tmp_path)
    plan = seen(tmp_path)
    assert (plan.goal, plan.source.entry["name"]) == ("detection", "box-texts")
    assert sum(one.examples for one in plan.parts.values()) == (
        48 if plan.source.parts.keys() == {"train", "validation"} else 72
    )
    reader = build_reader({**plan.source.entry, **plan.parts["train"].options}, tmp_path)
    first = next(iter(reader.boxes().values()))
    np.testing.assert_allclose(first.boxes[0], [2.4 if name in ("KITTI", "DOTA") else 2, 9, 12, 18])
    assert reader.class_names() == classes or len(reader.class_names()) == 10
    assert "testing" not in str(reader.locate(reader.examples()[0].images[0]))
    document = reader.truth().document
    assert sum(one["iscrowd"] for one in document["annotations"]) == ignored * len(document["images"])


def test_a_line_that_is_no_box_is_named(tmp_path):
    kitti(tmp_path)
    entry = seen(tmp_path).source.entry
    write(tmp_path, "training/label_2/000007.txt", KITTI + "Car 0.00 0\n")
    with pytest.raises(DataError, match="no box") as met:
        build_reader(entry, tmp_path).examples()
    assert met.value.where.endswith("000007.txt:3")


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


def test_tables_in_the_folders_of_their_pictures_name_each_its_own(tmp_path):
    """GTSRB as it is unpacked: the same names in the folder of each class, and one box a picture."""
    columns = ["Filename", "Width", "Height", "Roi.X1", "Roi.Y1", "Roi.X2", "Roi.Y2", "ClassId"]
    homes = {"Final_Test/Images/GT-final_test.csv": 0} | {
        f"Final_Training/Images/0{k}/GT-0{k}.csv": k for k in range(3)
    }
    for table, kind in homes.items():
        folder = Path("GTSRB", table).parent
        start = "" if "Test" in table else "00000_"
        names = photos(tmp_path, [(folder / f"{start}{n:05}.ppm").as_posix() for n in range(12)])
        rows = [[Path(name).name, *SIZE, 5, 6, 20, 15, (kind + n) % 3] for n, name in enumerate(names)]
        rows_of(tmp_path, f"GTSRB/{table}", columns, rows, ";")
    plan = seen(tmp_path)
    assert (plan.goal, plan.parts["test"].examples, plan.source.entry["beside"]) == ("image-classification", 12, True)
    reader = build_reader({**plan.source.entry, **plan.parts["train"].options}, tmp_path)
    rows = [(reader.locate(one.images[0]), one.targets["label"]) for one in reader.examples()]
    assert all(label == (int(path.parent.name) + int(path.stem[-5:])) % 3 for path, label in rows)
