from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlcli.errors import DataError
from vlcli.images.boxes import BoxList, boxes_for, by_number, image_id, path_ids, read_boxes

INSTANCES = {
    "images": [
        {"id": 7, "file_name": "train/000000000007.png", "height": 40, "width": 60},
        {"id": 8, "file_name": "train/000000000008.png", "height": 40, "width": 60},
    ],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2, 10, 20], "iscrowd": 0},
        {"id": 2, "image_id": 7, "category_id": 5, "bbox": [0, 0, 5, 5], "iscrowd": 1},
    ],
    "categories": [],
}


def write(path, content):
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("train2014/COCO_train2014_000000000009.jpg", "COCO_train2014_000000000009"),
        ("dev-5-0-img0.png", "dev-5-0-img0"),
        (r"a\b\c.jpeg", "c"),
        ("a.b.c.jpg", "a.b.c"),
        (".hidden", ".hidden"),
        ("plain", "plain"),
    ],
)
def test_image_id(path, name):
    assert image_id(path) == name


@given(st.text(st.characters(blacklist_characters="./\\\0", blacklist_categories=["Cs"]), min_size=1))
def test_image_id_ignores_folder_and_extension(stem):
    assert image_id(f"x/y.z/{stem}.jpg") == image_id(stem) == stem


def test_coco_instances(tmp_path):
    boxes = read_boxes(write(tmp_path / "i.json", INSTANCES))
    assert list(boxes) == ["000000000007"]  # no box says nothing about an image
    found = boxes["000000000007"]
    assert found.boxes.tolist() == [[1, 2, 11, 22]]
    assert (found.classes.tolist(), found.box_ids.tolist(), found.size) == ([3], ["1"], (40, 60))
    assert len(read_boxes(tmp_path / "i.json", crowds=True)["000000000007"]) == 2


def test_coco_results_are_found_by_number(tmp_path):
    rows = [{"image_id": 42, "category_id": 18, "bbox": [1, 1, 2, 2], "score": s} for s in (0.2, 0.7)]
    boxes = read_boxes(write(tmp_path / "r.json", rows))
    found = boxes_for(boxes, "COCO_val2014_000000000042")
    assert found.scores.tolist() == pytest.approx([0.2, 0.7])
    assert found.top(1).boxes.tolist() == [[1, 1, 3, 3]]
    assert boxes_for(boxes, "COCO_val2014_000000000043") is None


def test_list_per_image_and_npz(tmp_path):
    image = {"file_name": "a/x.jpg", "width": 9, "height": 8, "boxes": [[0, 0, 4, 4]], "category_ids": [2]}
    listed = read_boxes(write(tmp_path / "l.json", [image]))["x"]
    assert (listed.size, listed.classes.tolist(), listed.scores) == ((8, 9), [2], None)
    np.savez(tmp_path / "b.npz", x=np.array([[0, 0, 4, 4, 0.5, 2]]), y=np.zeros((0, 4)))
    arrays = read_boxes(tmp_path / "b.npz")
    assert arrays["x"].scores.tolist() == [0.5]
    assert arrays["x"].classes.tolist() == [2]
    assert len(arrays["y"]) == 0


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "{}", '[{"a": 1}]', '[{"file_name": "x", "boxes": [[1, 2, 3, 4]], "scores": [1, 2]}]'],
)
def test_bad_files_are_named(tmp_path, content):
    path = tmp_path / "bad.json"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        read_boxes(path)
    assert str(path) in str(caught.value)


def test_other_faults(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_boxes(tmp_path / "no.json")
    with pytest.raises(DataError, match="unknown format"):
        read_boxes(tmp_path / "no.json", format="voc")
    twice = [{"file_name": name, "boxes": []} for name in ("a/x.jpg", "a/x.png")]
    with pytest.raises(DataError) as caught:
        read_boxes(write(tmp_path / "t.json", twice))
    assert "two images are called 'x'" in str(caught.value)
    (tmp_path / "bad.npz").write_bytes(b"PK no zip")
    with pytest.raises(DataError):
        read_boxes(tmp_path / "bad.npz")


def test_files_that_name_pictures_by_numbers(tmp_path):
    rows = [{"file_name": 42, "boxes": [[0, 0, 5, 5]]}]
    content = {"images": [{"id": 42, "file_name": None}], "annotations": [{"image_id": 42, "bbox": [0, 0, 5, 5]}]}
    for one in (rows, content):
        boxes = read_boxes(write(tmp_path / "boxes.json", one))
        assert boxes_for(boxes, "COCO_val2014_000000000042").boxes.tolist() == [[0, 0, 5, 5]]
    with pytest.raises(DataError, match="two images are called '42'"):
        read_boxes(write(tmp_path / "boxes.json", rows * 2))


@pytest.mark.parametrize(
    "content", [{"images": [], "annotations": ["bbox"]}, [{"image_id": 1, "bbox": [0, 0, 1, 1], "category_id": 2**70}]]
)
def test_odd_contents_are_one_message(tmp_path, content):
    with pytest.raises(DataError, match="the file of boxes cannot be read"):
        read_boxes(write(tmp_path / "boxes.json", content))


@pytest.mark.parametrize("box", [[0, 0, 5, 5, 9, 9, 1, 1], [0, 0, 5, 5, 0.5]])
def test_rows_of_more_than_four_numbers_are_no_boxes(tmp_path, box):
    """Corners of a polygon, or a score behind the box; four rows of five numbers are no five boxes."""
    notes = [{"id": n, "image_id": 1, "category_id": 1, "bbox": box} for n in range(4)]
    for content in (
        {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": notes},
        [{"file_name": "a.jpg", "boxes": [box] * 4}],
    ):
        (tmp_path / "b.json").write_text(json.dumps(content))
        with pytest.raises(DataError, match="cannot be read"):
            read_boxes(tmp_path / "b.json")


@pytest.mark.parametrize("none", [None, 0])
def test_a_size_that_is_not_known_is_none(tmp_path, none):
    """Label Studio and others write null or 0."""
    (tmp_path / "b.json").write_text(
        json.dumps([{"file_name": "a", "height": 9, "width": none, "boxes": [[0, 0, 1, 1]]}])
    )
    assert read_boxes(tmp_path / "b.json")["a"].size is None


def test_top_orders_and_cuts():
    boxes = BoxList(np.arange(12, dtype=np.float32).reshape(3, 4), scores=np.array([0.1, 0.9, 0.9]))
    assert boxes.top(2).boxes[:, 0].tolist() == [4, 8]
    assert len(boxes.top(None)) == 3
    assert boxes.clipped((5, 6)).boxes.max() == 6


def test_real_files(shared):
    coco = read_boxes(shared / "data/boxes/coco.json")
    assert (len(coco), {len(boxes) for boxes in coco.values()}) == (436, {25})
    truth = read_boxes(shared / "data/annotations/coco_subset/instances.json")
    assert sum(map(len, truth.values())) == 2968 - 34
    assert len(read_boxes(shared / "data/annotations/coco/instances_val2014_fakebbox100_results.json")) > 90


NOT_FINITE = (float("nan"), float("inf"), -float("inf"))


@pytest.mark.parametrize("number", NOT_FINITE)
@pytest.mark.parametrize("kind", ["instances", "results", "mattnet", "per-image", "npz"])
def test_boxes_that_are_not_finite_are_refused_where_they_come_in(tmp_path, kind, number):
    good, bad = [1.0, 2.0, 3.0, 4.0], [1.0, number, 3.0, 4.0]
    image = {"id": 1, "file_name": "a.jpg", "height": 50, "width": 60}
    contents = {
        "instances": {"images": [image], "annotations": [{"id": n, "image_id": 1, "category_id": 1, "bbox": box}
                                                         for n, box in ((7, good), (8, bad))]},
        "results": [{"image_id": 1, "category_id": 1, "score": 0.5, "bbox": box} for box in (good, bad)],
        "mattnet": [{"image_id": 1, "category_id": 1, "score": 0.5, "box": box} for box in (good, bad)],
        "per-image": [{**image, "boxes": [good, bad]}],
    }  # fmt: skip
    path = tmp_path / ("boxes.npz" if kind == "npz" else "boxes.json")
    if kind == "npz":
        np.savez(path, a=np.array([good, bad]))
    else:
        write(path, contents[kind])
    with pytest.raises(DataError, match="a box is not finite") as caught:
        read_boxes(path)
    assert caught.value.where == str(path)
    assert "box 1" in caught.value.got


def test_no_box_list_holds_what_is_not_finite():
    with pytest.raises(DataError, match="not finite"):
        BoxList(np.array([[0, 0, np.nan, 1]], np.float32))


def test_equal_names_in_two_folders_are_two_images(tmp_path):
    rows = [{"file_name": f"{part}/0.png", "boxes": [[0, 0, size, size]]} for part, size in (("train", 5), ("test", 9))]
    boxes = read_boxes(write(tmp_path / "both.json", rows))
    assert list(boxes) == ["train/0", "test/0"]
    assert boxes_for(boxes, "images/test/0").boxes[0, 2] == 9
    assert boxes_for(boxes, "0") is None
    one = read_boxes(write(tmp_path / "one.json", rows[:1]))
    assert list(one) == ["0"]
    assert boxes_for(one, "images/train/0").boxes[0, 2] == 5
    assert boxes_for(one, "images/test/0") is None  # its folder says that it is another image


def test_the_ids_that_a_path_may_have_are_its_ends():
    assert path_ids("a/b/1.jpg") == ["a/b/1.jpg", "a/b/1", "b/1.jpg", "b/1", "1.jpg", "1"]


def test_a_number_that_several_names_end_in_names_none():
    names = ["COCO_val2014_000000000042", "a_7", "b_007", "plain"]
    assert by_number(names) == {42: "COCO_val2014_000000000042"}
