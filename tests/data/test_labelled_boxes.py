"""Labelled boxes of Pascal VOC and YOLO in their official forms, and damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vlcli import registry
from vlcli.data import Reader
from vlcli.errors import DataError


def build(root: Path, name: str, **options: Any) -> Reader:
    return registry.build("datasets", {"name": name, **options}, root)


def picture(path: Path, size: tuple[int, int] = (200, 100)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size).save(path)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def xml(name: str, *objects: tuple[str, tuple[float, ...], int]) -> str:
    rows = ""
    for label, box, hard in objects:
        sides = "".join(f"<{s}>{v}</{s}>" for s, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
        part = f"<part><name>head</name><bndbox>{sides}</bndbox></part>"
        rows += f"<object><name>{label}</name><pose>Left</pose><truncated>0</truncated><difficult>{hard}</difficult>"
        rows += f"<bndbox>{sides}</bndbox>{part}</object>"
    size = "<size><width>200</width><height>100</height><depth>3</depth></size>"
    return f"<annotation><folder>VOC2007</folder><filename>{name}</filename>{size}{rows}</annotation>"


def voc(root: Path) -> Path:
    """VOC2007 as it is unpacked."""
    base = root / "VOCdevkit/VOC2007"
    objects = {
        "000001": [("dog", (1, 1, 50, 60), 0), ("cat", (10, 10, 9, 40), 0), ("person", (5, 5, 90, 90), 1)],
        "000002": [("cat", (11, 21, 50, 60), 0)],
        "000003": [("aeroplane", (1, 1, 200, 100), 0)],
        "000004": [],
    }
    for name, rows in objects.items():
        write(base / f"Annotations/{name}.xml", xml(f"{name}.jpg", *rows))
        picture(base / f"JPEGImages/{name}.jpg")
    write(base / "ImageSets/Main/train.txt", "000001\n000002\n000004\n")
    write(base / "ImageSets/Main/val.txt", "000003\n")
    write(base / "ImageSets/Main/dog_train.txt", "000001  1\n000002 -1\n")
    return root


def test_voc_in_its_official_form(tmp_path: Path) -> None:
    reader = build(voc(tmp_path), "voc")
    assert [one.images for one in reader.examples()] == [["000001"], ["000002"]]
    assert (
        reader.class_names()
        == build(tmp_path, "voc", split="val").class_names()
        == ["aeroplane", "cat", "dog", "person"]
    )
    boxes = reader.boxes()
    assert boxes["000001"].boxes.tolist() == [[0, 0, 50, 60]]
    assert boxes["000002"].boxes.tolist() == [[10, 20, 50, 60]]
    assert boxes["000002"].classes.tolist() == [1]
    assert all(path.is_file() for path in reader.image_files().values())
    notes = " ".join(reader.notes())
    assert "1 boxes without area" in notes
    assert "1 images without boxes" in notes
    truth = reader.truth().document["annotations"]
    assert [(note["image_id"], note["category_id"], note["iscrowd"]) for note in truth] == [
        ("000001", 2, 0),
        ("000002", 1, 0),
        ("000001", 3, 1),
    ]
    everything = build(tmp_path, "voc", difficult=True, empty=True)
    assert [len(found) for found in everything.boxes().values()] == [2, 1, 0]
    assert len(everything.truth().document["annotations"]) == 3


def test_voc_of_exports_has_folders_or_no_parts(tmp_path: Path) -> None:
    for part in ("train", "valid"):
        write(tmp_path / f"{part}/{part}_a.xml", xml("other.png", ("cat", (1, 1, 9, 9), 0)))
        picture(tmp_path / f"{part}/{part}_a.png")
    assert build(tmp_path, "voc", split="valid").image_files() == {
        "valid_a": (tmp_path / "valid/valid_a.png").absolute()
    }
    flat = tmp_path / "flat"
    write(flat / "Annotations/a.xml", xml("a.jpg", ("cat", (1, 1, 9, 9), 0)))
    picture(flat / "images/a.jpg")
    assert build(flat, "voc").image_files() == {"a": (flat / "images/a.jpg").absolute()}
    with pytest.raises(DataError, match="missing") as caught:
        build(flat, "voc", split="test").examples()
    assert caught.value.where.endswith("ImageSets/Main/test.txt")


BOMB = '<!DOCTYPE l [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;">]><annotation><filename>&b;</filename></annotation>'
FILE = '<!doctype foo [<!ENTITY x SYSTEM "file:///etc/passwd">]><annotation><filename>&x;</filename></annotation>'


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        (BOMB, "document type", "a.xml"),
        (FILE, "document type", "a.xml"),
        ("<annotation>\n<object>", "malformed", "a.xml:2"),
        ("", "malformed", "a.xml:1"),
        ("<html/>", "no annotation", "a.xml"),
        (xml("a.jpg", ("cat", (1, 1, 9, 9), 0), ("", (1, 1, 9, 9), 0)), "no name or no box", "a.xml: object 2"),
        (xml("a.jpg", ("cat", (1, 1, 9, float("nan")), 0)), "no name or no box", "a.xml: object 1"),
        (xml("a.jpg", ("cat", (1, 1, 9, 9), 0)).replace("<xmin>1</xmin>", ""), "no name or no box", "object 1"),
    ],
)
def test_damaged_voc_files_are_named(tmp_path: Path, text: str, what: str, where: str) -> None:
    write(tmp_path / "Annotations/a.xml", text)
    with pytest.raises(DataError, match=what) as caught:
        build(tmp_path, "voc").examples()
    assert caught.value.where.endswith(where)


def yolo(root: Path, pictures: str, labels: str, data: str | None) -> Path:
    """Two parts of a YOLO data set; ``PART`` in the folders stands for the part."""
    for part, lines in (("train", ["0 0.5 0.5 0.5 1\n1 0.1 0.1 0.2 0.2\n", "", None]), ("val", ["1 .25 .5 .25 .5\n"])):
        for number, line in enumerate(lines):
            picture(root / pictures.replace("PART", part) / f"{part}{number}.jpg")
            if line is not None:
                write(root / labels.replace("PART", part) / f"{part}{number}.txt", line)
    if data is not None:
        write(root / "data.yaml", data)
    return root


YAML = "names: [no, dog]\nnc: 2\n"
LAYOUTS = {
    "ultralytics": ("images/PART", "labels/PART", "path: ../datasets/x\ntrain: images/train\nval: images/val\n" + YAML),
    "roboflow": ("PART/images", "PART/labels", "train: ../train/images\nval: ../val/images\n" + YAML),
    "foreign": ("images/PART", "labels/PART", "train: /home/me/x/images/train\nval: /home/me/x/images/val\n" + YAML),
    "names": ("PART/images", "PART/labels", "names: {0: no, 1: dog}\n"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_yolo_in_its_official_forms(tmp_path: Path, name: str) -> None:
    reader = build(yolo(tmp_path, *LAYOUTS[name]), "yolo")
    assert [one.images for one in reader.examples()] == [["train0"]]
    assert reader.class_names() == ["no", "dog"]
    np.testing.assert_allclose(reader.boxes()["train0"].boxes, [[50, 0, 150, 100], [0, 0, 40, 20]], atol=1e-4)
    assert reader.boxes()["train0"].classes.tolist() == [0, 1]
    assert "2 images without boxes" in " ".join(reader.notes())
    assert len(build(tmp_path, "yolo", empty=True).examples()) == 3
    for split in ("val", "valid"):
        other = build(tmp_path, "yolo", split=split)
        np.testing.assert_allclose(other.boxes()["val0"].boxes, [[25, 25, 75, 75]], atol=1e-4)
    with pytest.raises(DataError, match="no pictures of this split"):
        build(tmp_path, "yolo", split="test").examples()


def test_yolo_of_darknet_lists_its_pictures(tmp_path: Path) -> None:
    yolo(tmp_path, "obj", "obj", None)
    write(tmp_path / "obj.names", "cat\ndog\n")
    write(tmp_path / "train.txt", "/content/darknet/data/obj/train0.jpg\n/content/darknet/data/obj/train1.jpg\n")
    reader = build(tmp_path, "yolo", empty=True)
    assert ([one.images for one in reader.examples()], reader.class_names()) == (
        [["train0"], ["train1"]],
        ["cat", "dog"],
    )
    assert reader.image_files()["train0"] == (tmp_path / "obj/train0.jpg").absolute()


def test_yolo_without_parts_is_training_data_and_polygons_have_boxes(tmp_path: Path) -> None:
    picture(tmp_path / "images/a.jpg")
    write(tmp_path / "labels/a.txt", "0 0.1 0.1 0.5 0.1 0.3 0.9\n")
    write(tmp_path / "classes.txt", "cat\n")
    np.testing.assert_allclose(build(tmp_path, "yolo").boxes()["a"].boxes, [[20, 10, 100, 90]], atol=1e-4)
    assert build(tmp_path, "yolo", classes=["hen"]).class_names() == ["hen"]
    (tmp_path / "classes.txt").unlink()
    with pytest.raises(DataError, match="Nothing names the classes"):
        build(tmp_path, "yolo").examples()


@pytest.mark.parametrize(
    "line", ["2 .5 .5 .1 .1", "0 .5 .5 .1", "0 50 50 10 10", "cat .5 .5 .1 .1", "0 .5 nan .1 .1", "-1 0 0 0 0"]
)
def test_damaged_yolo_lines_are_named(tmp_path: Path, line: str) -> None:
    yolo(tmp_path, *LAYOUTS["names"])
    write(tmp_path / "train/labels/train0.txt", f"0 .5 .5 .1 .1\n{line}\n")
    with pytest.raises(DataError, match="no box") as caught:
        build(tmp_path, "yolo").examples()
    assert caught.value.where.endswith("train0.txt:2")


def test_key_points_that_are_not_seen_may_be_nan(tmp_path: Path) -> None:
    picture(tmp_path / "images/a.jpg")
    write(tmp_path / "labels/a.txt", "0 .5 .5 .2 .2 nan nan 0\n")
    write(tmp_path / "data.yaml", "train: images\nnames: [cat]\nkpt_shape: [1, 3]\n")
    np.testing.assert_allclose(build(tmp_path, "yolo").boxes()["a"].boxes, [[80, 40, 120, 60]], atol=1e-4)


def test_a_yaml_of_objects_is_refused(tmp_path: Path) -> None:
    yolo(tmp_path, *LAYOUTS["names"])
    write(tmp_path / "data.yaml", "names: !!python/object/apply:os.system [ls]\n")
    with pytest.raises(DataError, match="no YAML"):
        build(tmp_path, "yolo").examples()
