"""torchvision's detectors against torchvision's own code: training, detection, features, and the stages around them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from small_run import context
from torchvision.models.detection import FasterRCNN as TheirFasterRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import MultiScaleRoIAlign, box_iou
from vlcli_torchvision import FasterRCNN, TorchvisionExtractor
from vlcli_torchvision.detector import pictures_of, targets_of
from vlcli_torchvision.network import AttributeHeads
from vlcli_torchvision.pooling import SampledRoIAlign

from tests.plugins.torchvision.test_torchvision_extraction import MOBILE, prepared
from vlcli.data.pipeline import Pipeline
from vlcli.data.readers.coco import CocoInstances
from vlcli.data.shapes import ShapesConfig, make_shapes
from vlcli.engine.training_module import build_training_module
from vlcli.errors import ComponentError, UsageError
from vlcli.features import FeatureStore, verify
from vlcli.images.labels import Labels
from vlcli.nn import DataSpec, Images, Pixels
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
DATA_SPEC = DataSpec(region_classes=4, region_attributes=10, class_names=("circle", "square", "triangle", "star"))


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    root = tmp_path_factory.mktemp("world")
    make_shapes(root, ShapesConfig(images=30, parts=("coco",), captions=1), Silent())
    return root


def tiny(data_spec=DATA_SPEC, **options):
    torch.manual_seed(0)
    parameters = {key: value for key, value in {**TINY, **options}.items() if key != "name"}
    return FasterRCNN(data_spec, **parameters)


def batch_of(root, count=3, **options):
    data = Pipeline([CocoInstances(root, limit=count, **options)], needs=tiny().input_spec(), data_spec=DATA_SPEC)
    return data.batch(range(count)).clean.images


def theirs_and_ours(resolution=7):
    torch.manual_seed(0)
    backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5)
    sizes = {"min_size": 96, "max_size": 160, "rpn_post_nms_top_n_train": 40, "rpn_post_nms_top_n_test": 20}
    sizes |= {"rpn_pre_nms_top_n_train": 40, "rpn_pre_nms_top_n_test": 20, "box_batch_size_per_image": 32}
    theirs = TheirFasterRCNN(backbone, 5, rpn_batch_size_per_image=64, box_score_thresh=0.05, **sizes)
    data_spec = DataSpec(region_classes=4, region_attributes=0)
    options = {"proposals": 20, "rpn_samples": 64, "samples": 32, "short": 96, "long": 160}
    ours = FasterRCNN(data_spec, backbone="resnet18", **options)
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
    data_spec = DataSpec(region_classes=2, region_attributes=3)
    model = tiny(data_spec)
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
    data_spec = DataSpec(region_classes=4, region_attributes=10)
    module = build_training_module(TINY, ["region-labels"], data_spec)
    data = Pipeline([CocoInstances(world, limit=2)], needs=module.model.input_spec(), data_spec=data_spec)
    result = module(data.batch([0, 1]))
    result.total.backward()
    assert module.model.network.roi_heads.box_head.cells.weight.grad.abs().sum() > 0


def test_weights_of_other_classes_start_new_predictors_only():
    report: list[str] = []
    model = tiny()
    state = {n.removeprefix("network."): v for n, v in tiny(DataSpec(region_classes=9)).state_dict().items()}
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
    extractor.attach(Labels(DATA_SPEC.class_names, (1, 2, 3, 4)))
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


def test_sampled_roi_align_of_coarse_maps_and_of_no_box():
    """Maps of bfloat16, as in mixed precision: places stay those of float32."""
    torch.manual_seed(0)
    maps, sizes = {"0": torch.randn(2, 3, 16, 16).bfloat16().requires_grad_()}, [(128, 128)] * 2
    boxes = [torch.rand(7, 2, 2).sort(1).values.flatten(1) * 128 for _ in range(2)]
    pools = (MultiScaleRoIAlign(["0"], 5, 1), SampledRoIAlign("0", 5, 1, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        theirs, ours = (pool(maps, boxes, sizes) for pool in pools)
    assert ours.dtype == theirs.dtype == torch.bfloat16
    torch.testing.assert_close(ours, theirs, rtol=0.01, atol=1e-3)
    assert pools[1](maps, [torch.zeros(0, 4)] * 2, sizes).shape == (0, 3, 5, 5)


@pytest.mark.parametrize("sampling", [1, 2, 3])
@pytest.mark.parametrize("shape", [(5, 6, 16, 12), (3, 2, 1, 9), (1, 4, 7, 7)])
def test_sampled_roi_align_gives_torchvisions_cells_and_gradient(shape, sampling):
    """Boxes that leave the picture, that are smaller than a cell, and pictures without any."""
    torch.manual_seed(sampling)
    maps = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    height, width = shape[2] * 8, shape[3] * 8
    corners = [torch.rand(n * 3 % 7 + (n == 0), 2, 2, dtype=torch.float64) * 1.4 - 0.2 for n in range(shape[0])]
    boxes = [torch.cat([c.amin(1), c.amax(1)], 1) * torch.tensor([width, height] * 2) for c in corners]
    boxes[0][0] = torch.tensor([3.0, 4.0, 3.5, 4.25])
    rows = [
        pool({"0": maps}, boxes, [(height, width)] * shape[0])
        for pool in (MultiScaleRoIAlign(["0"], 5, sampling), SampledRoIAlign("0", 5, sampling, 8))
    ]
    torch.testing.assert_close(rows[1], rows[0], rtol=0, atol=1e-12)
    weights = torch.randn_like(rows[0])
    theirs, ours = (torch.autograd.grad(row, maps, weights)[0] for row in rows)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
