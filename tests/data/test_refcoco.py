"""Referring expressions: the pickled file and its JSON twin, the target box, faults."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from vlcli_lxmert import LXMERT

from vlcli.data.readers.refcoco import RefCOCO
from vlcli.data.shapes import ShapesConfig, make_shapes
from vlcli.errors import DataError
from vlcli.nn import DataSpec, ForwardPasses, Images, Regions, Text, View
from vlcli.nn.batch import Batch
from vlcli.objectives.regions import RegionSelection
from vlcli.progress import Silent
from vlcli.tasks.referring import Referring


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("world")
    make_shapes(root, ShapesConfig(images=40, parts=("coco", "refcoco")), Silent())
    return root


def test_the_pickled_file_and_its_json_twin_are_alike(world: Path) -> None:
    for split in ("train", "val", "testA", "testB"):
        pickled = RefCOCO(world, split=split).examples()
        assert pickled == RefCOCO(world, split=split, refs="refs(unc).json").examples()
        assert all(example.targets["kind"] in ("place", "other") for example in pickled)


def test_targets_are_annotated_boxes(world: Path) -> None:
    reader = RefCOCO(world)
    boxes = reader.boxes()
    for example in reader.examples()[:50]:
        given = boxes[example.images[0]]
        sides = np.array([given.size[1], given.size[0]] * 2)
        row = given.box_ids.tolist().index(str(example.targets["ann_id"]))
        np.testing.assert_allclose(np.array(example.targets["box"]) * sides, given.boxes[row], atol=1e-3)
        assert reader.locate(example.images[0]).is_file()


def test_a_file_that_could_run_something_is_refused(world: Path, tmp_path: Path) -> None:
    folder = tmp_path / "refcoco+"
    folder.mkdir()
    (folder / "instances.json").write_text((world / "refcoco" / "instances.json").read_text())
    (folder / "refs(unc).p").write_bytes(pickle.dumps([{"split": "train", "run": print}]))
    with pytest.raises(DataError, match="not plain data"):
        RefCOCO(tmp_path).examples()
    (folder / "refs(unc).p").write_bytes(pickle.dumps([{"split": "train", "image_id": 1}]))
    with pytest.raises(DataError):
        RefCOCO(tmp_path).examples()
    (folder / "instances.json").write_text(json.dumps({"images": []}))
    with pytest.raises(DataError):
        RefCOCO(tmp_path).examples()


DATA_SPEC = DataSpec(vocab_size=20, unk_id=1, cls_id=2, sep_id=3, mask_id=4, text_length=4, regions=3, region_dim=6)


def batch() -> Batch:
    boxes = torch.tensor([[[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1], [0, 0, 1, 1]]] * 2)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    regions = Regions(torch.randn(2, 3, 6), boxes, mask, torch.tensor([[100, 200], [100, 200]]))
    ids = torch.tensor([[2, 5, 6, 3]] * 2)
    text = Text(ids, ids > 0, ids < 4, ids * 0, keys=["a", "b"], raw=["a", "b"])
    rows = torch.arange(2)
    view = View(text, Images(["i", "j"], regions=regions), rows, rows[:, None], aligned=True)
    targets = {"box": torch.tensor([[0.5, 0.5, 1, 1], [0, 0, 0.5, 0.45]]), "kind": ["place", "other"]}
    return Batch({"clean": view}, targets, ["a", "b"], rows)


def model() -> LXMERT:
    torch.manual_seed(0)
    return LXMERT(DATA_SPEC, hidden=8, heads=2, text_layers=1, image_layers=1, cross_layers=1, dropout=0.0)


def test_loss_is_the_mean_over_real_regions() -> None:
    lxmert = model()
    objective, step = RegionSelection(lxmert, DATA_SPEC), ForwardPasses(lxmert, batch())
    outcome = objective(step, {})
    scores = objective.predict(step)["scores"]
    right = torch.tensor([[0.0, 1, 0], [1.0, 0, 0]])
    each = torch.nn.functional.binary_cross_entropy_with_logits(scores, right, reduction="none")
    wanted = (each[0].sum() + each[1, :2].sum()) / 5
    torch.testing.assert_close(outcome.losses["region-selection"].value(), wanted)
    softmax = RegionSelection(lxmert, DATA_SPEC, loss="softmax")
    softmax.load_state_dict(objective.state_dict())
    lost = -(scores[0].log_softmax(0)[1] + scores[1, :2].log_softmax(0)[0]) / 2
    torch.testing.assert_close(softmax(step, {}).losses["region-selection"].value(), lost)


def test_hits_and_kinds() -> None:
    scores = torch.tensor([[0.0, 2.0, 1.0], [2.0, 0.0, -9.0]])
    given = batch()
    outputs = {"region-selection": {"scores": scores, "boxes": given.clean.images.regions.boxes}}
    task = Referring()
    rows = task.decode(outputs, given)
    assert rows[0]["prediction"] == [100.0, 50.0, 200.0, 100.0]
    assert rows[1]["overlap"] == pytest.approx(0.9)
    score = task.score(rows)
    assert {name: score[name] for name in score if not name.startswith("chance")} == {
        "accuracy": 1.0,
        "accuracy/other": 1.0,
        "accuracy/place": 1.0,
    }
    assert score["chance/accuracy"] == pytest.approx(1 / 3)
    exact = Referring(overlap=0.9, reached=True).decode(outputs, given)[1]
    assert exact["correct"] == (exact["overlap"] >= 0.9)
    assert not Referring(overlap=0.95).decode(outputs, given)[1]["correct"]
