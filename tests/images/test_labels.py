"""Classes of boxes are numbered from 0 in every store, whatever the files call them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from small_run import context

from vlcli.errors import DataError
from vlcli.features import FeatureStore
from vlcli.images.boxes import BoxList, read_boxes
from vlcli.images.labels import COCO, Labels, class_table, ids_used, numbered, together
from vlcli.stages import extract

PICTURES = ("a", "b")
TINY = {"name": "backbone", "arch": "tiny-conv", "short": 0}


def listed(ids, **columns):
    """A box list per picture with these category ids."""
    boxes = [[2.0 * place, 0.0, 2.0 * place + 8, 9.0] for place in range(len(ids))]
    return {"file_name": "x.png", "width": 32, "height": 24, "boxes": boxes, "category_ids": list(ids), **columns}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "images").mkdir()
    for name in PICTURES:
        Image.new("RGB", (32, 24), (90, 120, 150)).save(tmp_path / "images" / f"{name}.png")
    return tmp_path


def write(path, content):
    path.write_text(json.dumps(content))
    return path


def instances(categories, ids, attributes=()):
    images = [{"id": 5 + p, "file_name": f"{name}.png", "width": 32, "height": 24} for p, name in enumerate(PICTURES)]
    notes = [
        {"id": place, "image_id": 5 + place % 2, "category_id": number, "bbox": [0, 0, 8, 8], "attributes": [1]}
        for place, number in enumerate(ids)
    ]
    document = {"images": images, "annotations": notes, "categories": categories}
    return document | ({"attribute_categories": list(attributes)} if attributes else {})


def store_of(root, **options):
    stage = {"kind": "extract", "extractor": TINY, "images": "images", "dtype": "float32", **options}
    extract.run(context(root / "regions", root, {}, **stage))
    return FeatureStore(root / "regions" / "features.h5")


def classes(store):
    return {name: store.read(name).classes.tolist() for name in store.ids}


def test_coco_has_eighty_categories_with_gaps():
    assert (len(COCO), min(COCO), max(COCO)) == (80, 1, 90)
    assert {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}.isdisjoint(COCO)
    from torchvision.models.detection import FasterRCNN_ResNet50_FPN_Weights

    theirs = FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"]
    assert all(theirs[number] == name for number, name in COCO.items())


def test_ids_without_names_are_cocos(root):
    write(root / "boxes.json", [listed([1, 90], file_name="a.png"), listed([13], file_name="b.png")])
    store = store_of(root, boxes="boxes.json")
    assert classes(store) == {"a": [0, 79], "b": [11]}
    provenance = store.provenance
    assert [provenance["classes"][number] for number in (0, 79, 11)] == ["person", "toothbrush", "stop sign"]
    assert [provenance["class_ids"][number] for number in (0, 79, 11)] == [1, 90, 13]


def test_a_files_own_categories_count_in_their_order(root):
    kinds = [{"id": 30, "name": "thing"}, {"id": 7, "name": "stuff"}]
    looks = [{"id": 1, "name": "red"}, {"id": 2, "name": "blue"}]
    write(root / "own.json", instances(kinds, [7, 30, 7], looks))
    store = store_of(root, boxes="own.json")
    assert classes(store) == {"a": [1, 1], "b": [0]}
    assert store.read("a").attributes.tolist() == [0, 0]
    known = {name: store.provenance[name] for name in ("classes", "class_ids", "attributes")}
    assert known == {"classes": ["thing", "stuff"], "class_ids": [30, 7], "attributes": ["red", "blue"]}


def test_a_data_sets_own_boxes_keep_their_names(root):
    kinds = [{"id": 30, "name": "thing"}, {"id": 7, "name": "stuff"}]
    write(root / "own.json", instances(kinds, [7, 30]))
    store = store_of(root, images=None, data={"name": "coco-instances", "file": "own.json"})
    assert classes(store) == {"a": [1], "b": [0]}
    assert store.provenance["class_ids"] == [30, 7]


def test_results_of_a_data_set_are_numbered_as_it_is(root):
    """The ids are COCO's too; but the data set says what it calls them."""
    write(root / "own.json", instances([{"id": 2, "name": "square"}, {"id": 1, "name": "circle"}], [1, 2]))
    rows = [{"image_id": n, "category_id": i, "bbox": [1, 1, 4, 4], "score": 0.5} for i, n in enumerate(PICTURES, 1)]
    write(root / "results.json", rows)
    store = store_of(root, images=None, data={"name": "coco-instances", "file": "own.json"}, boxes="results.json")
    assert classes(store) == {"a": [1], "b": [0]}
    assert store.provenance["classes"] == ["square", "circle"]


def test_several_files_share_one_numbering(root):
    write(root / "one.json", [listed([900], file_name="a.png")])
    write(root / "two.json", [listed([5], file_name="b.png")])
    store = store_of(root, boxes=["one.json", "two.json"])
    assert classes(store) == {"a": [1], "b": [0]}
    assert "classes" not in store.provenance
    assert store.provenance["class_ids"] == [5, 900]


def test_boxes_of_a_store_keep_their_numbers_and_names(root):
    write(root / "boxes.json", [listed([18], file_name="a.png"), listed([3], file_name="b.png")])
    first = store_of(root, boxes="boxes.json")
    (root / "regions").rename(root / "before")
    second = store_of(root, boxes="before/features.h5")
    assert classes(second) == {"a": [16], "b": [2]}
    assert second.provenance["classes"] == FeatureStore(root / "before" / "features.h5").provenance["classes"]
    assert first.set == second.set


def test_a_grid_has_no_classes(root):
    store = store_of(root, extractor={**TINY, "boxes": "grid"})
    assert "classes" not in store.provenance


def test_data_sets_with_different_classes_are_joined_by_name():
    box = np.zeros((1, 4), np.float32)
    parts = [
        ({"p": BoxList(box, classes=np.array([1]), attributes=np.array([-1]))}, Labels(("x", "y"), (10, 20), ("red",))),
        ({"q": BoxList(box, classes=np.array([0]), attributes=np.array([0]))}, Labels(("y", "z"), (20, 30), ("red",))),
        ({"r": BoxList(box)}, Labels()),
    ]
    boxes, labels = together(parts)
    assert labels == Labels(("x", "y", "z"), (10, 20, 30), ("red",))
    assert [boxes[name].classes.tolist() for name in "pq"] == [[1], [1]]
    assert boxes["p"].attributes.tolist() == [-1]
    assert boxes["r"].classes is None
    with pytest.raises(DataError, match="others have none"):
        together([parts[0], ({"s": BoxList(box, classes=np.array([0]))}, Labels((), (7,)))])


def test_ids_outside_a_table_are_unknown():
    boxes = {"a": BoxList(np.zeros((2, 4), np.float32), classes=np.array([3, 99]))}
    assert ids_used(boxes) == {3, 99}
    assert numbered(boxes, Labels(("car",), (3,)))["a"].classes.tolist() == [0, -1]
    assert class_table({3, 99}, {}).class_ids == (3, 99)


def test_mattnets_detections_are_boxes(root):
    rows = [
        {"det_id": 4, "image_id": 42, "box": [10, 5, 21, 11], "category_id": 18, "score": 0.9},
        {"det_id": 5, "image_id": 43, "box": [0, 0, 1, 1], "category_id": 1, "score": 0.8},
    ]
    boxes = read_boxes(write(root / "dets.json", rows))
    assert boxes["42"].boxes.tolist() == [[10, 5, 30, 15]]
    assert (boxes["42"].box_ids.tolist(), boxes["43"].classes.tolist()) == (["4"], [1])
    assert boxes["42"].scores.tolist() == pytest.approx([0.9])


def test_real_box_files_number_cocos_categories(shared):
    files = [read_boxes(shared / "data/boxes" / name) for name in ("coco.json", "flickr8k_1000.json")]
    truth = read_boxes(shared / "data/annotations/coco_subset/instances.json")
    found = extract.number_files([*files, truth], [])
    for boxes, labels in found:
        assert labels.classes == tuple(COCO.values())
        highest = max(int(one.classes.max()) for one in boxes.values())
        assert 70 < highest <= 79
