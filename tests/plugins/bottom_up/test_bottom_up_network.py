"""Bottom-up attention's networks and inputs: equal to torchvision's, sizes and options."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.ops import FeaturePyramidNetwork, FrozenBatchNorm2d
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool
from vlcli_bottom_up import FAMILIES, BottomUpExtractor, Detector
from vlcli_bottom_up.families import published as published_sizes
from vlcli_bottom_up.families import read_architecture, recognise

from tests.plugins.bottom_up.test_bottom_up import blobs, extractor
from tests.plugins.detectors import FPN, make, picture, published
from vlcli.detection.extraction import extract_images
from vlcli.detection.extractor import DetectorPreparation
from vlcli.errors import UsageError
from vlcli.images.boxes import BoxList


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def torchvision_names(name: str) -> str:
    name = name.replace("backbone.", "").replace("bottom_up.", "").replace("stem.conv1.norm", "bn1")
    name = name.replace("stem.conv1", "conv1")
    for number in range(2, 6):
        name = name.replace(f"res{number}.", f"layer{number - 1}.")
    for number in (1, 2, 3):
        name = name.replace(f"conv{number}.norm", f"bn{number}")
    return name.replace("shortcut.norm", "downsample.1").replace("shortcut.", "downsample.0.")


@torch.inference_mode()
def test_backbone_and_pyramid_are_torchvisions():
    sizes = replace(FPN, stem=64, out=256, inner=64, groups=8, blocks=(1, 1, 2, 1), pyramid=16)
    detector = make("detectron2", sizes=sizes)
    for name, value in detector.named_buffers():
        if "running_mean" in name:
            value.normal_()
    state = {k: v for k, v in detector.state_dict().items() if k.startswith("backbone.bottom_up")}
    body = ResNet(Bottleneck, [1, 1, 2, 1], groups=8, width_per_group=8, norm_layer=FrozenBatchNorm2d)
    kept = {torchvision_names(k): v for k, v in state.items()}
    assert set(body.state_dict()) - set(kept) == {"fc.weight", "fc.bias"}
    body.load_state_dict(kept, strict=False)
    pyramid = FeaturePyramidNetwork([256, 512, 1024, 2048], 16, extra_blocks=LastLevelMaxPool())
    theirs = pyramid.state_dict()
    for number in range(2, 6):
        for kind, part_of in (("lateral", "inner_blocks"), ("output", "layer_blocks")):
            for part in ("weight", "bias"):
                theirs[f"{part_of}.{number - 2}.0.{part}"] = detector.state_dict()[
                    f"backbone.fpn_{kind}{number}.{part}"
                ]
    pyramid.load_state_dict(theirs)
    x = torch.randn(1, 3, 64, 96)
    y = body.maxpool(body.relu(body.bn1(body.conv1(x))))
    maps = {}
    for number in range(1, 5):
        maps[str(number)] = y = body.get_submodule(f"layer{number}")(y)
    for ours, other in zip(detector.backbone(x), pyramid(maps).values(), strict=True):
        assert torch.allclose(ours, other, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "shapes"),
    [
        ("caffe", {"backbone.res4.22.conv3.weight": (1024, 256, 1, 1),
                   "proposal_generator.rpn_head.objectness_logits.weight": (24, 512, 1, 1),
                   "proposal_generator.rpn_head.anchor_deltas.bias": (48,),
                   "roi_heads.res5.2.conv2.weight": (512, 512, 3, 3),
                   "roi_heads.box_predictor.cls_score.weight": (1601, 2048),
                   "roi_heads.box_predictor.bbox_pred.weight": (6404, 2048),
                   "roi_heads.attributes.embedding.weight": (1601, 256),
                   "roi_heads.attributes.hidden.weight": (512, 2304),
                   "roi_heads.attributes.score.weight": (401, 512)}),
        ("airsplay", {"proposal_generator.rpn_head.objectness_logits.weight": (12, 512, 1, 1),
                      "roi_heads.box_predictor.bbox_pred.weight": (6400, 2048),
                      "roi_heads.attributes.score.bias": (401,)}),
        ("vlp", {"backbone.bottom_up.res2.0.conv2.weight": (256, 4, 3, 3),
                 "backbone.bottom_up.res5.0.conv1.weight": (2048, 1024, 1, 1),
                 "backbone.fpn_output2.weight": (256, 256, 3, 3),
                 "roi_heads.box_head.fc1.weight": (2048, 256 * 49),
                 "roi_heads.box_predictor.bbox_pred.weight": (6404, 2048)}),
    ],
)  # fmt: skip
def test_published_shapes(family, shapes):
    with torch.device("meta"):
        detector = Detector(FAMILIES[family], published_sizes(FAMILIES[family], 101, 0, 0, None))
    state = detector.state_dict()
    assert {name: tuple(state[name].shape) for name in shapes} == shapes
    unsaid = {} if detector.sizes.attributes else {"embedding": 0, "attribute_hidden": 0}
    fc = detector.sizes.fc if detector.sizes.pyramid else 0
    assert read_architecture(state, "here") == replace(detector.sizes, **unsaid, fc=fc)


def test_cardinality_and_width_are_options():
    sizes = published_sizes(FAMILIES["vlp"], 101, 32, 8, 128)
    assert (sizes.groups, sizes.inner, sizes.pyramid) == (32, 256, 128)
    with pytest.raises(UsageError, match="pyramid"):
        published_sizes(FAMILIES["caffe"], 101, 0, 0, 256)
    with pytest.raises(UsageError, match="depth"):
        published_sizes(FAMILIES["caffe"], 34, 0, 0, None)


def slow_resize(pixels: np.ndarray, factor: float) -> np.ndarray:
    """OpenCV's bilinear resize of a float image, pixel by pixel (h, w, 3)."""
    height, width = pixels.shape[:2]
    out = np.zeros((round(height * factor), round(width * factor), 3))
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            v = min(max((y + 0.5) / factor - 0.5, 0), height - 1)
            u = min(max((x + 0.5) / factor - 0.5, 0), width - 1)
            a, b = int(v), int(u)
            c, d = min(a + 1, height - 1), min(b + 1, width - 1)
            top = pixels[a, b] * (1 - u + b) + pixels[a, d] * (u - b)
            bottom = pixels[c, b] * (1 - u + b) + pixels[c, d] * (u - b)
            out[y, x] = top * (1 - v + a) + bottom * (v - a)
    return out


@pytest.mark.parametrize("size", [(37, 53), (64, 31)])
def test_float_input_is_bgr_without_its_mean_resized(size):
    image = picture((size[0], max(size[1], 31)), seed=3)
    made = DetectorPreparation(short=48, long=70, boxes="none")
    item = made(image, None)
    bgr = np.asarray(image).astype(np.float64)[:, :, ::-1] - [102.9801, 115.9465, 122.7717]
    expected = slow_resize(bgr, made.factor((image.height, image.width)))
    assert tuple(item.pixels.shape[1:]) == expected.shape[:2] == made.input_size((image.height, image.width))
    assert np.allclose(item.pixels.permute(1, 2, 0).numpy(), expected, atol=1e-3)


@pytest.mark.parametrize(
    ("size", "float_size", "image_size"),
    [((480, 640), (600, 800), (600, 800)), ((333, 500), (600, 901), (600, 901)), ((360, 640), (562, 1000), (562, 1000)),
     ((640, 200), (1000, 312), (1000, 313))],
)  # fmt: skip
def test_sizes(size, float_size, image_size):
    """Halves: OpenCV rounds 312.5 to the even number, detectron2 upwards."""
    assert DetectorPreparation(resize="float").input_size(size) == float_size
    assert DetectorPreparation(resize="image").input_size(size) == image_size


def test_image_input_is_pillows():
    image = picture((50, 60))
    item = DetectorPreparation(short=40, long=100, boxes="none", resize="image")(image, None)
    resized = np.asarray(image.resize((48, 40), Image.Resampling.BILINEAR)).astype(np.float32)
    mean = np.array([102.9801, 115.9465, 122.7717], np.float32)
    assert np.array_equal(item.pixels.permute(1, 2, 0).numpy(), resized[:, :, ::-1] - mean)
    assert item.scale == (48 / 60, 40 / 50)


def test_a_picture_too_narrow_is_listed_not_fatal(tmp_path):
    picture().save(tmp_path / "a.png")
    Image.new("RGB", (1000, 2)).save(tmp_path / "b.png")
    images = [("a", tmp_path / "a.png"), ("b", tmp_path / "b.png")]
    report = extract_images(images, extractor(tmp_path), tmp_path / "f.h5")
    assert [error.id for error in report.errors] == ["b"]
    assert report.images == 1


def test_impossible_counts():
    with pytest.raises(UsageError, match="min_boxes and max_boxes disagree"):
        BottomUpExtractor(min_boxes=10, max_boxes=5)


def test_random_weights_come_from_the_seed():
    first, same, other = (make("caffe", seed=seed).state_dict() for seed in (1, 1, 2))
    name = "backbone.res2.0.conv1.weight"
    assert torch.equal(first[name], same[name])
    assert not torch.equal(first[name], other[name])


def test_a_detector_with_a_pyramid_is_not_taken_for_another():
    tensors = published(make("vlp"), "vlp")
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    assert recognise(tensors, shapes, "here") == "detectron2"
    assert recognise(blobs(make("vlp")), {}, "here") == "vlp"


def test_sampling_is_the_familys_unless_chosen(tmp_path):
    """MILVLG's configurations say 2, detectron2's default (its zoo's) is 0; stores keep which it was."""
    assert {name: family.sampling for name, family in FAMILIES.items() if family.sampling != (2, 2)} == {
        "detectron2": (2, 0)
    }
    small = {"depth": 50, "cardinality": 1, "width": 8}
    with_head = BottomUpExtractor(family="detectron2", **small)
    assert with_head.detector.roi_heads.sampling == 2
    assert with_head.provenance()["parameters"]["sampling"] == 2
    assert with_head.notes()[0].startswith("bottom-up: family detectron2, rule ")
    chosen = BottomUpExtractor(family="detectron2", sampling=0, **small)
    assert chosen.detector.roi_heads.sampling == 0
    assert chosen.provenance()["parameters"]["sampling"] == 0
    boxes = BoxList(np.array([[0, 0, 90, 80]], np.float32))
    for made in (with_head, chosen):
        made.boxes = "given"
        made.preparation.boxes = "given"
    rows = [made.extract([made.prepare(picture(), boxes)])[0].features for made in (with_head, chosen)]
    assert not np.array_equal(*rows)
