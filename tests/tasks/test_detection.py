"""Boxes from files through the pipeline to average precision and COCO's results file."""

from __future__ import annotations

import contextlib
import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from vlcli.data.pipeline import Pipeline
from vlcli.data.reader import Reader, Truth
from vlcli.data.readers.coco import CocoInstances
from vlcli.data.sample import Example
from vlcli.engine.evaluation import TaskRunner
from vlcli.engine.training_module import build_training_module
from vlcli.errors import DataError
from vlcli.images.boxes import read_boxes
from vlcli.metrics.detection import average_precision
from vlcli.nn import DataSpec, DetectionOutput, InputSpec, Model
from vlcli.registry.entries import component
from vlcli.tasks.detection import Detection, joined

STATS = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100")
SIZES = {"a": (60, 80), "b": (90, 50), "c": (40, 40), "d": (30, 70)}


def document(shift: float = 0.0) -> dict:
    """Four pictures of four sizes, the third without a box and the fourth with nothing but a crowd."""
    boxes = {"a": [(10, 10, 20, 30, 18), (50, 5, 20, 20, 3)], "b": [(5, 40, 30, 40, 3)], "d": [(0, 0, 30, 20, 3)]}
    notes = [
        {"image_id": 100 + "abcd".index(name), "category_id": kind, "bbox": [x + shift, y, w, h], "area": w * h}
        for name, rows in boxes.items()
        for x, y, w, h, kind in rows
    ]
    for number, note in enumerate(notes):
        note |= {"id": number, "iscrowd": int(note["image_id"] == 103)}
    images = [
        {"id": 100 + place, "file_name": f"{name}.png", "height": h, "width": w}
        for place, (name, (h, w)) in enumerate(SIZES.items())
    ]
    kinds = [{"id": 18, "name": "dog"}, {"id": 3, "name": "car"}]
    return {"images": images, "annotations": notes, "categories": kinds}


@pytest.fixture
def world(tmp_path):
    (tmp_path / "images").mkdir()
    for name, (height, width) in SIZES.items():
        Image.new("RGB", (width, height), (200, 80, 40)).save(tmp_path / "images" / f"{name}.png")
    (tmp_path / "instances_val.json").write_text(json.dumps(document()))
    return tmp_path


def reader(root, **options):
    return CocoInstances(root, file="instances_val.json", **options)


class Oracle(Model):
    """Finds the boxes it was given, moved by ``off`` of the picture, and one that is not there."""

    capabilities = frozenset({"image", "boxes", "detect"})

    def __init__(self, data_spec: DataSpec, *, off: float = 0.0, short: int = 0, long: int = 0) -> None:
        super().__init__(data_spec)
        self.off, self.short, self.long = off, short, long
        self.weight = torch.nn.Parameter(torch.zeros(1))

    @property
    def dim(self) -> int:
        return 1

    def input_spec(self) -> InputSpec:
        return InputSpec(pixels=True, boxes=True, short=self.short, long=self.long)

    def detect(self, images):
        pixels = images.pixels
        given = [pixels.boxes[row][real] for row, real in enumerate(pixels.box_mask)]
        labels = [pixels.classes[row][real] for row, real in enumerate(pixels.box_mask)]
        junk = torch.tensor([[0.0, 0.0, 0.01, 0.01]])
        return DetectionOutput.ragged(
            [torch.cat([boxes + self.off, junk]) for boxes in given],
            [torch.cat([found, torch.tensor([0])]) for found in labels],
            [torch.tensor([*[0.9] * len(boxes), 0.2]) for boxes in given],
        )

    def detection_losses(self, images):
        boxes = images.pixels.boxes[images.pixels.box_mask]
        return {"box": ((boxes * self.weight).sum(), torch.tensor(float(len(boxes))))}


@pytest.fixture
def oracle(monkeypatch):
    import importlib

    module = importlib.import_module("vlcli.registry.entries")
    monkeypatch.setattr(module, "_session", dict(module._session))
    component("models", "oracle")(Oracle)


def evaluate(task, readers, options, data_spec=None):
    data_spec = data_spec or DataSpec(region_classes=2, class_names=("dog", "car"), class_ids=(18, 3))
    module = build_training_module({"name": "oracle", **options}, task.objectives(), data_spec).eval()
    data = Pipeline(readers, needs=module.model.input_spec(), data_spec=data_spec)
    return task.evaluate(TaskRunner(module, data, batch_size=3)), module, data


def test_what_is_found_is_scored_and_written_in_the_files_own_ids(world, oracle, tmp_path):
    task = Detection(min_score=0.5)
    result, _, _ = evaluate(task, [reader(world)], {})
    assert [result.metrics[name] for name in ("AP", "AP/dog", "AP50")] == pytest.approx([1, 1, 1])
    assert "APl" not in result.metrics, "no box is so large"
    written = json.loads(task.submission(result.predictions, tmp_path)[0].read_text())
    assert [(row["image_id"], row["category_id"]) for row in written] == [(100, 18), (100, 3), (101, 3)]
    np.testing.assert_allclose(written[0]["bbox"], [10, 10, 20, 30], atol=0.01)
    assert result.predictions[0]["classes"] == ["dog", "car"]
    assert set(written[0]) == {"image_id", "category_id", "bbox", "score"}


def test_boxes_that_are_off_lose_the_high_thresholds(world, oracle):
    moved, _, _ = evaluate(Detection(), [reader(world)], {"off": 0.06})
    assert 0 < moved.metrics["AP"] < 1
    assert moved.metrics["AP75"] < moved.metrics["AP50"]


def test_classes_are_matched_by_name_whatever_their_order(world, oracle):
    data_spec = DataSpec(region_classes=3, class_names=("bird", "dog", "car"))
    task = Detection(min_score=0.5)
    result, _, _ = evaluate(task, [reader(world)], {}, data_spec)
    # The oracle repeats the file's numbers 0 and 1, which this model calls bird and dog: birds are not in the file.
    assert [row["categories"] for row in result.predictions] == [[None, 18], [18]]


def test_pictures_without_boxes_count_where_the_file_is_complete(world, oracle):
    some, _, data = evaluate(Detection(), [reader(world)], {})
    assert data.total == 2
    every, _, data = evaluate(Detection(), [reader(world, empty=True)], {})
    assert data.total == 4
    assert data.batch(range(4)).clean.images.pixels.box_mask.sum(1).tolist() == [2, 1, 0, 0]
    assert [every.metrics["AP/car"], some.metrics["AP/car"]] == pytest.approx([1, 1])  # the crowd asks for nothing
    assert every.metrics["AP/dog"] == pytest.approx(1)  # recall was full before the false ones


def test_pictures_keep_their_proportions_and_boxes_their_place(world, oracle):
    data_spec = DataSpec(region_classes=2)
    data = Pipeline([reader(world)], needs=InputSpec(pixels=True, boxes=True, short=45, long=100), data_spec=data_spec)
    pixels = data.batch([0, 1]).clean.images.pixels
    assert pixels.images.shape == (2, 3, 81, 60)
    assert [int(rows.any(1).sum()) for rows in pixels.mask] == [45, 81]
    assert [int(rows.any(0).sum()) for rows in pixels.mask] == [60, 45]
    np.testing.assert_allclose(pixels.boxes[0, 0], [10 / 80, 10 / 60, 30 / 80, 40 / 60], atol=1e-6)
    result, _, _ = evaluate(Detection(min_score=0.5), [reader(world)], {"short": 45, "long": 100})
    assert result.metrics["AP"] == pytest.approx(1)


def test_the_objective_trains_on_the_models_own_losses(world, oracle):
    _, module, data = evaluate(Detection(), [reader(world)], {})
    result = module.train()(data.batch([0, 1]))
    result.total.backward()
    assert list(result.losses) == ["detection"]
    assert result.losses["detection"].count == 3
    assert module.model.weight.grad.abs() > 0


def test_equal_to_pycocotools_summary_on_real_detections(shared):
    """EfficientDet-Lite2's boxes on photographs; the summary is computed by pycocotools alone."""
    content = json.loads((shared / "data/annotations/coco_subset/instances.json").read_text())
    named = {row["file_name"].split(".")[0]: row["id"] for row in content["images"]}
    annotated = {note["image_id"] for note in content["annotations"]}
    found = [
        {"image_id": named[name], "category_id": int(kind), "score": float(score), "bbox": [x, y, right - x, low - y]}
        for name, boxes in read_boxes(shared / "data/boxes/coco.json").items()
        if named.get(name) in annotated
        for (x, y, right, low), score, kind in zip(
            boxes.boxes.astype(float).tolist(), boxes.scores, boxes.classes, strict=True
        )
    ]
    truth = {key: content[key] for key in ("images", "annotations", "categories")}
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = COCO()
        theirs.dataset = {**truth, "annotations": [dict(note) for note in truth["annotations"]]}
        theirs.createIndex()
        evaluation = COCOeval(theirs, theirs.loadRes(found), "bbox")
        evaluation.evaluate(), evaluation.accumulate(), evaluation.summarize()
    ours = average_precision(truth, found)
    np.testing.assert_allclose([ours[name] for name in STATS], evaluation.stats[:9], atol=1e-12)
    assert ours["AP50"] > 0.3, "a real detector"


def test_categories_of_one_name_share_their_row():
    notes = [{"image_id": 1, "category_id": key, "bbox": [10 * key, 0, 5, 5]} for key in (1, 2)]
    names = [{"id": 1, "name": "cat"}, {"id": 2, "name": "cat"}]
    truth = {"images": [{"id": 1, "width": 50, "height": 9}], "categories": names, "annotations": notes}
    ours = average_precision(truth, [{**notes[0], "score": 0.9}])
    assert ours["AP/cat"] == ours["AP"] == pytest.approx(0.5)


def test_nothing_found_is_no_fault():
    truth = {**document(), "annotations": document()["annotations"][:1]}
    assert average_precision(truth, [])["AP"] == 0.0


def test_truth_of_any_reader_with_boxes(tmp_path):
    class Own(Reader):
        def files(self):
            return []

        def read(self):
            return [Example("1", None, ["p"])]

        def boxes(self):
            return {"p": SimpleNamespace(boxes=np.array([[1.0, 2, 4, 8]]), classes=np.array([1]))}

        def class_names(self):
            return ["x", "y"]

    truth = Own(tmp_path).truth()
    note = {"image_id": "p", "category_id": 1, "bbox": [1.0, 2.0, 3.0, 6.0], "area": 18.0, "iscrowd": 0}
    assert truth.document["annotations"] == [note]
    found = [{"image_id": "p", "category_id": 1, "bbox": [1, 2, 3, 6], "score": 0.5}]
    assert average_precision(truth.document, found)["AP"] == pytest.approx(1)


def test_data_sets_are_joined_only_where_their_numbers_agree(world):
    truth = reader(world, empty=True).truth()
    assert joined([truth, truth]).document == truth.document
    other = Truth(truth.document, {"elsewhere": 100})
    with pytest.raises(DataError, match="one number"):
        joined([truth, other])
    with pytest.raises(DataError, match="categories"):
        joined([truth, Truth({**truth.document, "categories": []}, truth.numbers)])


def test_a_picture_as_thin_as_a_line_is_drawn(tmp_path):
    Image.new("RGB", (2000, 1)).save(tmp_path / "line.png")
    task = Detection()
    task.files = {"line": tmp_path / "line.png"}
    row = {"image": "line", "image_id": 1, "boxes": [], "categories": [], "classes": [], "scores": []}
    assert [path.name for path in task.submission([row], tmp_path)] == ["detections.json", "detections.png"]


def test_predictions_without_a_truth_are_written_by_the_models_own_names():
    images = SimpleNamespace(keys=["p"], pixels=SimpleNamespace(sizes=torch.tensor([[50, 100]])))
    clean = SimpleNamespace(images=images, image_rows=torch.tensor([[0]]))
    batch = SimpleNamespace(clean=clean, keys=["p"])
    task = Detection(limit=1)
    task.attach(DataSpec(class_names=("dog",)))
    outputs = {
        "detection": {
            "boxes": torch.tensor([[[0.1, 0.2, 0.5, 0.6], [0.0, 0.0, 1.0, 1.0]]]),
            "labels": torch.tensor([[0, 0]]),
            "scores": torch.tensor([[0.3, 0.6]]),
        }
    }
    rows = task.decode(outputs, batch)
    assert rows[0]["boxes"] == [[0.0, 0.0, 100.0, 50.0]]
    assert rows[0]["classes"] == ["dog"]
    assert task.score(rows) == {}
