"""Referring expressions: candidates of both settings, the rule of a hit, and a model that learns it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from small_run import context

from vlcli.data.readers.refcoco import RefCOCO
from vlcli.data.shapes import ShapesConfig, make_shapes
from vlcli.errors import DataError
from vlcli.features.schema import Record
from vlcli.features.writer import FeatureWriter
from vlcli.progress import Silent
from vlcli.stages import evaluate
from vlcli.stages.training import run_training
from vlcli.tasks.referring import Referring


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shapes, and detections in MAttNet's form: every box moved a little, and one box of nothing."""
    root = tmp_path_factory.mktemp("world")
    make_shapes(root, ShapesConfig(images=60, parts=("coco", "refcoco"), objects=(2, 4)), Silent())
    notes = json.loads((root / "refcoco/instances.json").read_text())["annotations"]
    found = [
        {"image_id": n["image_id"], "category_id": n["category_id"], "score": 0.9, "box": [x + 1, y - 1, w, h - 1]}
        for n in notes
        for x, y, w, h in [n["bbox"]]
    ]
    found += [
        {"image_id": number, "category_id": 77, "score": 0.99, "box": [1, 1, 9, 9]}
        for number in sorted({n["image_id"] for n in notes})
    ]
    (root / "dets.json").write_text(json.dumps(found))
    return root


def test_candidates_of_both_settings(world: Path) -> None:
    train = RefCOCO(world, candidates="both", detections="dets.json").boxes()
    test = RefCOCO(world, split="testA", candidates="detected", detections="dets.json").boxes()
    truth = RefCOCO(world).boxes()
    assert set(train) == set(truth)
    assert not set(train) & set(test)
    for name, found in train.items():
        own = len(truth[name])
        assert len(found) == 2 * own + 1
        np.testing.assert_array_equal(found.boxes[:own], truth[name].boxes)  # kept where only so many boxes are
        assert found.box_ids[own] == "detected-0"
        np.testing.assert_array_equal(found.boxes[own], [1, 1, 9, 9])  # the surest first; an unknown class is -1
        assert found.classes[own] == -1
        np.testing.assert_array_equal(found.classes[own + 1 :], truth[name].classes)
        assert found.scores is None  # they would tell which are annotated
        assert (found.boxes >= 0).all()
        assert (found.boxes <= found.size[0]).all()
    assert all(str(name).startswith("detected-") for found in test.values() for name in found.box_ids)
    whole = RefCOCO(world, whole=True).boxes()
    assert all(found.boxes[0].tolist() == [0, 0, 112, 112] for found in whole.values())
    with pytest.raises(DataError, match="no file of them"):
        RefCOCO(world, candidates="detected")
    with pytest.raises(DataError, match="missing"):
        RefCOCO(world, candidates="both", detections="other.json").examples()
    with pytest.raises(DataError, match="leaves"):
        RefCOCO(world, detections="../other.json")


def test_chance_is_the_share_of_boxes_that_hit_whichever_way_the_target_is_given() -> None:
    """Two pictures with three and two boxes; the third place of the second is padding."""
    boxes = torch.tensor(
        [[[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0, 0.5, 0.4]], [[0, 0, 1, 1], [0, 0, 0.1, 0.1], [0, 0, 1, 1]]]
    )
    lowest = torch.finfo(torch.float32).min
    outputs = {"region-selection": {"scores": torch.tensor([[3.0, 1, 2], [0, 1, lowest]]), "boxes": boxes}}
    shares = [[0, 0, 0.5, 0.5], [0, 0, 1, 1]]
    sizes = torch.tensor([[100, 200], [40, 20]])  # height, width
    sides = sizes.flip(1).repeat(1, 2)
    pixels = (torch.tensor(shares) * sides).tolist()
    regions = SimpleNamespace(sizes=sizes)
    view = SimpleNamespace(images=SimpleNamespace(regions=regions), image_rows=torch.tensor([[0], [1]]))
    for targets in ({"box": shares}, {"pixel_box": pixels}):
        batch: Any = SimpleNamespace(clean=view, keys=["a", "b"], targets=targets)
        rows = Referring().decode(outputs, batch)
        assert [row["correct"] for row in rows] == [True, False]
        assert [row["chance"] for row in rows] == pytest.approx([2 / 3, 1 / 2])
        assert Referring().score(rows) == pytest.approx({"accuracy": 0.5, "chance/accuracy": 7 / 12})
        assert rows[0]["prediction"] == [0, 0, 100, 50]


def test_a_hit_at_exactly_a_half() -> None:
    box, half = torch.tensor([0.0, 0, 10, 10]), torch.tensor([0.0, 0, 10, 5])
    overlap = Referring().overlaps(half[None], box)[0]
    assert overlap == 0.5
    assert not Referring().is_hit(overlap)
    assert Referring(reached=True).is_hit(overlap)
    # VL-BERT counts pixels with both borders: (11 * 6) / (11 * 11)
    assert Referring(pixels=True).overlaps(half[None], box)[0] == pytest.approx(66 / 121)


def features(root: Path, reader: RefCOCO, folder: Path) -> Path:
    """A store at the reader's candidates, whose features show colour, kind and size."""
    folder.mkdir()
    truth = json.loads((root / "refcoco/instances.json").read_text())
    looks = {str(n["id"]): n for n in truth["annotations"]}
    rng = np.random.default_rng(0)
    with FeatureWriter(folder / "features.h5", provenance={}, dtype="float32") as writer:
        for name, found in reader.boxes().items():
            rows = np.zeros((len(found), 16), np.float32)
            for row, key in enumerate(found.box_ids):
                note = looks[str(key)]
                rows[row, [note["category_id"], *(4 + number for number in note["attributes"])]] = 1
            rows += 0.05 * rng.standard_normal(rows.shape).astype(np.float32)
            writer.append(Record(name, rows, found.boxes, found.size, box_ids=found.box_ids))
        writer.finish()
    return folder


@pytest.mark.slow
def test_a_tiny_model_learns_expressions_without_place_words(tmp_path: Path) -> None:
    pytest.importorskip("vlcli_dimbert")
    torch.set_num_threads(1)
    root = tmp_path / "world"
    make_shapes(root, ShapesConfig(images=500, parts=("coco", "refcoco"), objects=(2, 4)), Silent())
    splits = ["train", "val", "testA", "testB"]
    store = features(root, RefCOCO(root, split=splits), tmp_path / "regions")
    sizes = {"hidden": 48, "heads": 4, "layers": 2, "dropout": 0.0, "init_std": 0.08}
    options: dict[str, Any] = {
        "kind": "finetune",
        "task": {"name": "referring"},
        "model": {"name": "dimbert", "concepts": 0, "appearance": "linear", **sizes},
        "text": {"vocabulary": {"train": [{"name": "refcoco"}], "size": 120}, "length": 16},
        "optimizer": {"lr": 3e-3, "betas": [0.9, 0.98]},
        "batch_size": 64,
        "epochs": 8,
    }
    inputs = {"regions": store}
    run_training(context(tmp_path / "refer", root, inputs, features=["regions"], **options))
    scoring = {"kind": "evaluate", "from": "refer", "split": "val"}
    inputs |= {"refer": tmp_path / "refer"}
    result = evaluate.run(context(tmp_path / "val", root, inputs, features=["regions"], **scoring))
    assert result.metrics["accuracy/other"] > 0.8
    assert {"accuracy", "accuracy/place"} <= set(result.metrics)
