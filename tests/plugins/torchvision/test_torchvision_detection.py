"""torchvision's detectors against torchvision's own code: training, detection, features, and the stages around them."""

from __future__ import annotations

import json
from collections import OrderedDict

import numpy as np
import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file
from small_run import context
from torchvision.models.detection import FasterRCNN as TheirFasterRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import box_iou
from vlcli_torchvision import FasterRCNN, TorchvisionExtractor
from vlcli_torchvision.detector import pictures_of, targets_of
from vlcli_torchvision.network import AttributeHeads
from vlcli_torchvision.select import Choice, Found, select

from vlcli.data.pipeline import Pipeline
from vlcli.data.readers.coco import CocoInstances
from vlcli.data.shapes import ShapesConfig, make_shapes
from vlcli.detection.extractor import Prepared
from vlcli.engine.learner import build_learner
from vlcli.errors import ComponentError, DataError, UsageError
from vlcli.features import FeatureStore, verify
from vlcli.images.boxes import BoxList
from vlcli.images.labels import Labels
from vlcli.nn import Facts, Images, Pixels
from vlcli.progress import Silent
from vlcli.stages import extract, finetune

TINY = {
    "name": "faster-rcnn",
    "backbone": "tiny-conv",
    "short": 0,
    "head": "mean",
    "width": 16,
    "resolution": 3,
    "sampling": 1,
    "ratios": [1.0],
    "proposals": 16,
    "rpn_samples": 32,
    "samples": 16,
}
FACTS = Facts(region_classes=4, region_attributes=10, class_names=("circle", "square", "triangle", "star"))


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    root = tmp_path_factory.mktemp("world")
    make_shapes(root, ShapesConfig(images=30, parts=("coco",), captions=1), Silent())
    return root


def tiny(facts=FACTS, **options):
    torch.manual_seed(0)
    parameters = {key: value for key, value in {**TINY, **options}.items() if key != "name"}
    return FasterRCNN(facts, **parameters)


def batch_of(root, count=3, **options):
    data = Pipeline([CocoInstances(root, limit=count, **options)], needs=tiny().needs(), facts=FACTS)
    return data.batch(range(count)).clean.images


def theirs_and_ours(resolution=7):
    torch.manual_seed(0)
    backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5)
    sizes = {"min_size": 96, "max_size": 160, "rpn_post_nms_top_n_train": 40, "rpn_post_nms_top_n_test": 20}
    sizes |= {"rpn_pre_nms_top_n_train": 40, "rpn_pre_nms_top_n_test": 20, "box_batch_size_per_image": 32}
    theirs = TheirFasterRCNN(backbone, 5, rpn_batch_size_per_image=64, box_score_thresh=0.05, **sizes)
    facts = Facts(region_classes=4, region_attributes=0)
    options = {"proposals": 20, "rpn_samples": 64, "samples": 32, "short": 96, "long": 160}
    ours = FasterRCNN(facts, backbone="resnet18", **options)
    ours.network.load_state_dict(theirs.state_dict())
    return theirs, ours


def test_losses_and_detections_are_torchvisions_own(world):
    theirs, ours = theirs_and_ours()
    images = batch_of(world)
    pictures = pictures_of(images)
    torch.manual_seed(7)
    expected = theirs.train()(pictures, targets_of(images.pixels, pictures))
    torch.manual_seed(7)
    found = ours.train().detection_losses(images)
    values = {"objectness": "loss_objectness", "proposal": "loss_rpn_box_reg", "class": "loss_classifier"}
    for name, key in {**values, "box": "loss_box_reg"}.items():
        total, count = found[name]
        assert count == 3
        assert float(total.detach() / count) == pytest.approx(float(expected[key].detach()), abs=1e-6)
    with torch.no_grad():
        expected = theirs.eval()(pictures)
        found = ours.eval().detect(images)
    scale = torch.tensor([112.0] * 4)
    for row, one in enumerate(expected):
        count = len(one["scores"])
        assert count > 0
        torch.testing.assert_close(found.boxes[row, :count] * scale, one["boxes"], atol=1e-4, rtol=0)
        assert found.labels[row, :count].tolist() == (one["labels"] - 1).tolist()
        assert (found.labels[row, count:] == -1).all()


def test_attributes_add_a_loss_and_change_no_other(world):
    images = batch_of(world)
    with_them, without = tiny().train(), tiny(attributes=False).train()
    shared = {k: v for k, v in with_them.state_dict().items() if "attribute" not in k}
    without.load_state_dict(shared)
    torch.nn.init.zeros_(with_them.network.roi_heads.attribute_predictor.weight)
    torch.nn.init.zeros_(with_them.network.roi_heads.attribute_predictor.bias)
    losses = []
    for model in (with_them, without):
        torch.manual_seed(1)
        losses.append({name: float(total.detach() / n) for name, (total, n) in model.detection_losses(images).items()})
    assert losses[0].pop("attribute") == pytest.approx(np.log(10), abs=1e-5)  # uniform over ten
    assert losses[0] == losses[1]


def test_the_attribute_asked_for_is_that_of_the_object_a_box_shows():
    heads = tiny().network.roi_heads
    assert isinstance(heads, AttributeHeads)
    boxes = torch.tensor([[0.0, 0, 20, 20], [50, 50, 80, 80]])
    targets = [{"boxes": boxes, "labels": torch.tensor([1, 2]), "attributes": torch.tensor([7, -1])}]
    proposals = [torch.tensor([[1.0, 1, 20, 20], [51, 50, 80, 80], [85, 0, 99, 30]])]
    chosen, _, labels, _ = heads.train().select_training_samples(proposals, targets)
    wanted = [7 if label == 1 else -1 for label in labels[0].tolist()]
    assert heads._wanted.tolist() == wanted
    assert 7 in wanted
    overlap = box_iou(chosen[0], boxes).argmax(1)
    assert all(overlap[row] == 0 for row, value in enumerate(wanted) if value == 7)


def test_pictures_of_different_sizes_and_without_objects():
    facts = Facts(region_classes=2, region_attributes=3)
    model = tiny(facts)
    mask = torch.zeros(2, 64, 80, dtype=torch.bool)
    mask[0, :40, :80] = mask[1, :64, :48] = True
    nothing = torch.zeros(2, 1, dtype=torch.bool)
    pixels = Pixels(torch.rand(2, 3, 64, 80), torch.tensor([[40, 80], [64, 48]]), mask, torch.zeros(2, 1, 4), nothing)
    pixels.classes = torch.full((2, 1), -1)
    images = Images(["a", "b"], pixels=pixels)
    assert [tuple(picture.shape) for picture in pictures_of(images)] == [(3, 40, 80), (3, 64, 48)]
    losses = model.train().detection_losses(images)
    sum(total for total, _ in losses.values()).backward()
    assert losses["box"][0] == losses["attribute"][0] == 0
    pixels.boxes = pixels.box_mask = None
    assert "class" in model.detection_losses(images)
    with torch.no_grad():
        assert model.eval().detect(images).boxes.shape[0] == 2


def test_losses_of_held_out_data_leave_the_mode_as_it_was(world):
    model = tiny().eval()
    model.detection_losses(batch_of(world, 2))
    assert not any(module.training for module in model.modules())


def test_region_labels_train_on_its_box_features_too(world):
    facts = Facts(region_classes=4, region_attributes=10)
    learner = build_learner(TINY, ["region-labels"], facts)
    data = Pipeline([CocoInstances(world, limit=2)], needs=learner.model.needs(), facts=facts)
    result = learner(data.batch([0, 1]))
    result.total.backward()
    assert learner.model.network.roi_heads.box_head.cells.weight.grad.abs().sum() > 0


def test_weights_of_other_classes_start_new_predictors_only():
    report: list[str] = []
    model = tiny()
    state = {n.removeprefix("network."): v for n, v in tiny(Facts(region_classes=9)).state_dict().items()}
    adapted = model.adapt(state, report)
    assert set(adapted) == set(model.state_dict())
    assert report
    changed = [name for name, value in model.state_dict().items() if adapted[name].shape != value.shape]
    assert changed == []
    assert not torch.equal(adapted["network.rpn.head.conv.0.0.weight"], torch.zeros(1))


def test_bad_choices_are_named():
    with pytest.raises(ComponentError, match="no such backbone"):
        tiny(backbone="resnet19")
    with pytest.raises(ComponentError, match="anchors do not fit"):
        tiny(backbone="resnet18", anchors=(16, 32))
    with pytest.raises(ComponentError, match="no such detector"):
        TorchvisionExtractor(arch="fasterrcnn_resnet51_fpn")
    with pytest.raises(UsageError):
        TorchvisionExtractor(arch="ssdlite320_mobilenet_v3_large", class_probs=True)


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
    found = Found(torch.tensor([[1.0, 2, 9, 9], [20, 20, 30, 30]]), torch.tensor([0, 1]), torch.tensor([0.9, 0.1]))
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
    found = select(Found(boxes, labels, scores), choice, cells, (60, 70))
    kept, filled = chosen_plainly(scores.tolist(), labels.tolist(), boxes, choice, cells)
    expected = [boxes[row].tolist() for row in kept] + (cells.tolist() if filled else [])
    assert found.boxes.tolist() == (expected or [[0.0, 0.0, 70.0, 60.0]])
    assert found.labels[: len(kept)].tolist() == [int(labels[row]) for row in kept]
    assert (found.labels[len(kept) :] == -1).all()
    assert (found.scores[len(kept) :] == 0).all()


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory):
    """A few steps of the real stage."""
    folder = tmp_path_factory.mktemp("runs") / "detector"
    stage = context(
        folder,
        world,
        {},
        kind="finetune",
        model=TINY,
        task={"name": "detection"},
        data={"name": "coco-instances"},
        validation={"name": "coco-instances", "split": "val"},
        steps=3,
        batch_size=4,
    )
    result = finetune.run(stage)
    return folder, result


def test_a_stage_trains_it_and_scores_what_is_held_out(trained):
    folder, result = trained
    assert {"AP", "AP50", "train/loss", "train/loss/detection/attribute"} <= set(result.metrics)
    facts = json.loads((folder / "model" / "config.json").read_text())["facts"]
    assert facts["class_names"] == ["circle", "square", "triangle", "star"]
    assert facts["class_ids"] == [1, 2, 3, 4]


def extracted(tmp_path, world, trained, **options):
    options = {"name": "torchvision", "confidence": 0.0, "min_boxes": 0, "max_boxes": 6, **options}
    data = {"name": "coco-instances", "split": "val"}
    spec = {"kind": "extract", "extractor": options, "data": data, "dtype": "float32", "from": "detector"}
    stage = context(tmp_path / "regions", world, {"detector": trained[0]}, **spec)
    result = extract.run(stage)
    return FeatureStore(tmp_path / "regions" / "features.h5"), result


def test_an_extract_stage_takes_its_detector_from_the_training_stage(tmp_path, world, trained):
    store, result = extracted(tmp_path, world, trained)
    assert (len(store), store.dim) == (3, 16)
    assert verify(tmp_path / "regions" / "features.h5") == []
    record = store.read(store.ids[0])
    assert 1 <= len(record) <= 6
    assert record.class_scores.max() <= 1
    assert set(record.classes) <= {0, 1, 2, 3}
    assert set(record.attributes) <= set(range(10))
    assert store.provenance["classes"] == ["circle", "square", "triangle", "star"]
    assert store.provenance["class_ids"] == [1, 2, 3, 4]
    assert store.provenance["attributes"][0] == "red small"
    assert store.provenance["boxes"] == "detected"
    assert any("detector's own" in note for note in result.notes)


def test_boxes_are_detected_only_where_the_data_are_what_it_was_trained_on(tmp_path, world, trained):
    store, _ = extracted(tmp_path, world, trained, boxes="auto")
    assert store.provenance["boxes"] == "detected"
    extractor = TorchvisionExtractor(weights=str(trained[0] / "model" / "model.safetensors"), boxes="auto")
    extractor.attach(Labels(("dog",), (18,)))
    assert extractor.preparation.boxes == "given-or-grid"
    extractor.attach(Labels())
    assert "grid" in extractor.notes()[1]
    extractor.attach(Labels(FACTS.class_names, (1, 2, 3, 4)))
    assert extractor.preparation.boxes == "none"


def test_a_stage_that_trained_no_detector_is_refused(tmp_path, world):
    stage = context(
        tmp_path / "eyes",
        world,
        {},
        kind="finetune",
        model={"name": "region-classifier"},
        task={"name": "region-labels"},
        data={"name": "coco-instances"},
        steps=1,
        batch_size=2,
    )
    finetune.run(stage)
    with pytest.raises(ComponentError, match="no detector") as caught:
        TorchvisionExtractor(weights=str(tmp_path / "eyes" / "model" / "model.safetensors"))
    assert "region-classifier" in str(caught.value)


def test_batches_do_not_change_a_record(trained):
    weights = str(trained[0] / "model" / "model.safetensors")
    extractor = TorchvisionExtractor(weights=weights, confidence=0.0, min_boxes=0)
    items = [prepared(seed=seed) for seed in range(3)]
    with torch.no_grad():
        together = extractor.extract(items)
        alone = [extractor.extract([item])[0] for item in items]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.boxes, other.boxes, atol=1e-3)
        np.testing.assert_allclose(one.features, other.features, atol=1e-4)


def test_a_real_photograph_passes(shared, tmp_path):
    file = next(iter(sorted((shared / "data/images/coco").glob("*.jpg"))))
    extractor = TorchvisionExtractor(**MOBILE, confidence=0.0, min_boxes=2)
    with Image.open(file) as opened:
        item = extractor.prepare(opened.convert("RGB"), None)
    record = extractor.extract([item])[0]
    height, width = record.size
    assert (record.boxes >= 0).all()
    assert (record.boxes[:, 2] <= width).all()
    assert (record.boxes[:, 3] <= height).all()
