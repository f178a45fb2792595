"""The extractor torchvision: records, features at given boxes, the rule of selection."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torchvision.ops import box_iou
from vlcli_torchvision import TorchvisionExtractor
from vlcli_torchvision.extractor import Choice, Regions, select

from vlcli.detection.extractor import Prepared
from vlcli.errors import DataError
from vlcli.images.boxes import BoxList


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def prepared(size=(60, 80), seed=0, boxes=None):
    pixels = torch.from_numpy(np.random.default_rng(seed).integers(0, 255, (3, *size), dtype=np.uint8))
    return Prepared(pixels, size, (1.0, 1.0), boxes, "a")


MOBILE = {"arch": "fasterrcnn_mobilenet_v3_large_320_fpn", "short": 64, "long": 96}


@pytest.mark.parametrize(
    ("arch", "dim"),
    [
        ("fasterrcnn_mobilenet_v3_large_320_fpn", 1024),
        ("maskrcnn_resnet50_fpn", 1024),
        ("fcos_resnet50_fpn", 256),
        ("ssdlite320_mobilenet_v3_large", 672),
    ],
)
def test_records_hold_what_torchvision_detects(arch, dim):
    """Boxes, classes and scores of the plain module; features of its own heads at these boxes."""
    extractor = TorchvisionExtractor(arch=arch, confidence=0.0, min_boxes=0, max_boxes=5, short=64, long=96)
    assert extractor.dim == dim
    network = extractor.network
    item = prepared()
    with torch.no_grad():
        plain = network([item.pixels.float() / 255])[0]
        record = extractor.extract([item])[0]
    real = extractor.loaded.numbers(plain["labels"]) >= 0
    count = min(5, int(real.sum()))
    assert len(record) == max(1, count)
    assert record.features.shape == (max(1, count), dim)
    assert np.isfinite(record.features).all()
    if count:
        order = plain["scores"][real].argsort(descending=True, stable=True)[:count]
        np.testing.assert_allclose(record.boxes, plain["boxes"][real][order].numpy(), atol=1e-4)
        np.testing.assert_allclose(record.scores, plain["scores"][real][order].numpy(), atol=1e-6)
        ids = [extractor.loaded.labels.class_ids[number] for number in record.classes]
        assert ids == plain["labels"][real][order].tolist()
        names = torchvision.models.get_model_weights(arch).DEFAULT.meta["categories"]
        assert [extractor.loaded.labels.classes[n] for n in record.classes] == [names[i] for i in ids]


@torch.no_grad()
def test_features_at_given_boxes_are_the_box_heads():
    extractor = TorchvisionExtractor(**MOBILE, boxes="given")
    boxes = np.array([[5, 5, 40, 50], [0, 0, 80, 60]], np.float32)
    item = prepared(boxes=BoxList(boxes, classes=np.array([3, 1]), box_ids=np.array(["x", "y"])))
    record = extractor.extract([item])[0]
    network = extractor.network
    images, targets = network.transform([item.pixels.float() / 255], [{"boxes": torch.from_numpy(boxes)}])
    maps = network.backbone(images.tensors)
    pooled = network.roi_heads.box_roi_pool(maps, [targets[0]["boxes"]], images.image_sizes)
    np.testing.assert_allclose(record.features, network.roi_heads.box_head(pooled).numpy(), atol=1e-5)
    assert (record.classes.tolist(), record.box_ids.tolist()) == ([3, 1], ["x", "y"])
    assert "classes" not in extractor.provenance(), "the numbers of given boxes are not the detector's"


@torch.no_grad()
def test_class_probabilities_are_the_heads_own():
    extractor = TorchvisionExtractor(**MOBILE, boxes="given", class_probs=True)
    item = prepared(boxes=BoxList(np.array([[5, 5, 40, 50]], np.float32)))
    record = extractor.extract([item])[0]
    assert record.class_probs.shape == (1, 80)
    scores = extractor.network.roi_heads.box_predictor.cls_score(torch.from_numpy(record.features)).softmax(-1)[0]
    names = torchvision.models.detection.FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"]
    for number, name in ((0, "person"), (79, "toothbrush")):
        assert extractor.loaded.labels.classes[number] == name
        assert record.class_probs[0, number] == pytest.approx(float(scores[names.index(name)]), abs=1e-6)


def test_published_files_load_by_their_old_names(tmp_path):
    torch.manual_seed(3)
    arch = MOBILE["arch"]
    network = torchvision.models.get_model(arch, weights=None, weights_backbone=None, num_classes=5)
    old = OrderedDict()
    for name, value in network.state_dict().items():
        parts = name.replace("rpn.head.conv.0.0.", "rpn.head.conv.")
        if ".fpn.inner_blocks." in name or ".fpn.layer_blocks." in name:
            parts = name.replace(".0.weight", ".weight").replace(".0.bias", ".bias")
        old[parts] = value
    assert set(old) != set(network.state_dict())
    torch.save(old, tmp_path / "old.pth")
    extractor = TorchvisionExtractor(**MOBILE, weights=str(tmp_path / "old.pth"))
    loaded = extractor.network.state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in network.state_dict().items())
    assert (extractor.loaded.labels.classes, extractor.loaded.labels.class_ids) == ((), (1, 2, 3, 4))
    provenance = extractor.provenance()
    assert provenance["weights"] == "old.pth"
    assert len(provenance["weights_sha256"]) == 64
    save_file({"a": torch.zeros(1)}, tmp_path / "no.safetensors")
    with pytest.raises(DataError, match="do not fit"):
        TorchvisionExtractor(**MOBILE, weights=str(tmp_path / "no.safetensors"))
    with pytest.raises(DataError, match="do not exist"):
        TorchvisionExtractor(**MOBILE, weights=str(tmp_path / "absent.pth"))


def chosen_plainly(scores, labels, boxes, choice, cells):
    """The rule once more, box by box."""
    rows = sorted((row for row in range(len(scores)) if labels[row] >= 0), key=lambda row: -scores[row])
    free: list[int] = []
    for row in rows:
        if all(float(box_iou(boxes[row][None], boxes[other][None])) <= choice.apart for other in free):
            free.append(row)
    strong = [row for row in free if scores[row] >= choice.confidence]
    kept = free[: max(len(strong), choice.least)] if choice.weaker else strong
    kept = kept[: choice.most]
    return kept, len(strong) < choice.least and cells is not None


def test_the_whole_picture_may_stand_beside_the_detections():
    found = Regions(torch.tensor([[1.0, 2, 9, 9], [20, 20, 30, 30]]), torch.tensor([0, 1]), torch.tensor([0.9, 0.1]))
    kept = select(found, Choice(0.5, 0, 5, weaker=False, whole=True), None, (60, 70))
    assert kept.boxes.tolist() == [[1, 2, 9, 9], [0, 0, 70, 60]]
    assert kept.labels.tolist() == [0, -1]
    nothing = select(found.rows(torch.arange(0)), Choice(0.5, 0, 5, whole=True), None, (60, 70))
    assert nothing.boxes.tolist() == [[0, 0, 70, 60]]  # once, not twice


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 8), st.integers(0, 4), st.integers(1, 6), st.booleans(), st.booleans())
def test_the_rule_of_selection(seed, count, least, most, weaker, gridded):
    rng = np.random.default_rng(seed)
    low = rng.random((count, 2)) * 30
    boxes = torch.from_numpy(np.concatenate([low, low + 5 + rng.random((count, 2)) * 30], 1)).float()
    scores = torch.from_numpy(rng.permutation(np.linspace(0.05, 0.95, max(count, 1)))[:count]).float()
    labels = torch.from_numpy(rng.integers(-1, 3, count))
    cells = torch.tensor([[0.0, 0, 5, 5], [5, 0, 10, 5]]) if gridded else None
    choice = Choice(0.5, least, most, float(rng.choice([0.3, 1.0])), weaker)
    found = select(Regions(boxes, labels, scores), choice, cells, (60, 70))
    kept, filled = chosen_plainly(scores.tolist(), labels.tolist(), boxes, choice, cells)
    expected = [boxes[row].tolist() for row in kept] + (cells.tolist() if filled else [])
    assert found.boxes.tolist() == (expected or [[0.0, 0.0, 70.0, 60.0]])
    assert found.labels[: len(kept)].tolist() == [int(labels[row]) for row in kept]
    assert (found.labels[len(kept) :] == -1).all()
    assert (found.scores[len(kept) :] == 0).all()
