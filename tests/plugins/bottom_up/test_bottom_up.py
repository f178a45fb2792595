from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torchvision.ops import FrozenBatchNorm2d
from typer.testing import CliRunner
from vlcli_bottom_up import FAMILIES, BottomUpExtractor, Detector
from vlcli_bottom_up.families import canonical
from vlcli_bottom_up.proposals import centred_cells, legacy_cells

from tests.docs.pages import PROJECT, blocks
from tests.plugins.detectors import FPN, make, picture, published, save, sizes_of
from vlcli import registry
from vlcli.cli import app
from vlcli.detection.extraction import extract_images
from vlcli.detection.extractor import Extractor
from vlcli.errors import DataError
from vlcli.features import FeatureStore, verify
from vlcli.images.boxes import BoxList

NAMES = ["caffe", "airsplay", "detectron2", "vlp"]
SMALL = {"short": 96, "long": 160, "proposals_before": 200, "proposals": 60}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def extractor(tmp_path, family="caffe", detector=None, **options) -> BottomUpExtractor:
    path = save(published(detector or make(family), family), tmp_path / f"{family}.pth")
    return BottomUpExtractor(**{"weights": path, "family": family, "min_boxes": 5, "max_boxes": 12, **SMALL, **options})


def blobs(detector: Detector) -> dict[str, torch.Tensor]:
    """The same weights as Detectron's Caffe2 blobs, scale and shift in place of the norms."""
    last = {2: 0, 3: 0, 4: 1, 5: 0}
    made = {"fc6_w_momentum": torch.zeros(2), "lr": torch.zeros(1)}
    for name, value in detector.state_dict().items():
        kind = "b" if name.endswith("bias") else "w"
        parts = name.split(".")
        if "running" in name or "cell_anchors" in name:
            continue
        if "norm" in parts:
            kind = "s" if kind == "w" else "b"
        if "stem" in parts:
            key = "res_conv1_bn" if "norm" in parts else "conv1"
        elif "bottom_up" in parts:
            branch = {"shortcut": "1", "conv1": "2a", "conv2": "2b", "conv3": "2c"}[parts[4]]
            key = f"{parts[2]}_{parts[3]}_branch{branch}" + ("_bn" if "norm" in parts else "")
        elif parts[1].startswith("fpn_"):
            level = int(parts[1][-1])
            key = f"fpn_res{level}_{last[level]}_sum"
            if "lateral" in parts[1]:
                key = f"fpn_inner_res{level}_{last[level]}_sum" + ("_lateral" if level < 5 else "")
        else:
            key = {"conv": "conv_rpn_fpn2", "objectness_logits": "rpn_cls_logits_fpn2", "fc1": "fc6", "fc2": "fc7",
                   "anchor_deltas": "rpn_bbox_pred_fpn2"}.get(parts[-2], parts[-2])  # fmt: skip
        made[f"{key}_{kind}"] = value / (1 + 1e-5) ** 0.5 if kind == "s" else value  # the variance is worked in
    return made


def test_registered():
    made = registry.build("extractors", {"name": "bottom-up", "depth": 50})
    assert isinstance(made, Extractor)
    assert (made.dim, made.trained_on) == (2048, "untrained")
    assert "untrained" in made.notes()[0]


@pytest.mark.parametrize("family", NAMES)
def test_family_and_sizes_are_read_off_the_weights(tmp_path, family):
    detector = make(family)
    tensors = blobs(detector) if family == "vlp" else published(detector, family)
    made = BottomUpExtractor(weights=save(tensors, tmp_path / "w.pth"), **SMALL)
    assert made.detector.family.name == family
    unsaid = {} if sizes_of(family).attributes else {"embedding": 0, "attribute_hidden": 0}
    assert made.detector.sizes == replace(sizes_of(family), **unsaid, fc=FPN.fc if family == "vlp" else 0)
    assert made.dim == detector.sizes.dim
    ours, theirs = made.detector, detector
    theirs.fold()
    pixels = torch.randn(1, 3, 96, 128) * 50
    ours.proposal_generator.family = theirs.proposal_generator.family
    with torch.inference_mode():
        a, b = (one(pixels, [(96, 128)], [(1.0, 1.0)])[0] for one in (ours, theirs))
        assert torch.allclose(a.regress(), b.regress(), atol=1e-2)
    assert torch.allclose(a.boxes, b.boxes, atol=1e-2)
    assert torch.allclose(a.probs, b.probs, atol=1e-4)


def test_own_statistics_of_caffe2_norms(tmp_path):
    """A scale and a shift alone mean mean 0 and variance 1."""
    detector = make("vlp")
    tensors = canonical(blobs(detector))
    name = "backbone.bottom_up.res4.1.conv2.norm"
    x = torch.randn(2, 64, 3, 3)
    norm = FrozenBatchNorm2d(64, eps=1e-5)
    norm.load_state_dict({key: tensors[f"{name}.{key}"] for key in norm.state_dict()})
    scaled = x * tensors[f"{name}.weight"][:, None, None] + tensors[f"{name}.bias"][:, None, None]
    assert torch.allclose(norm(x), scaled, atol=1e-6)


def test_tracked_batches_are_tolerated_and_reported(tmp_path):
    tensors = published(make("caffe"), "caffe")
    tensors |= {"backbone.res2.0.conv1.norm.num_batches_tracked": torch.tensor(7)}
    save_file(tensors, tmp_path / "w.safetensors")
    made = BottomUpExtractor(weights=str(tmp_path / "w.safetensors"))
    assert made.report.left_over == ["backbone.res2.0.conv1.norm.num_batches_tracked"]
    assert made.report.matched == len(tensors) - 1
    assert made.provenance()["weights_sha256"] == made.report.sha256


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda t: {k: v for k, v in t.items() if k != "backbone.res4.1.conv2.weight"},
            "1 missing: backbone.res4.1.conv2.weight",
        ),
        (lambda t: t | {"roi_heads.mask_head.weight": torch.ones(1)}, "1 without a place: roi_heads.mask_head.weight"),
        (lambda t: t | {"roi_heads.box_predictor.bbox_pred.bias": torch.ones(3)}, "1 of another shape"),
        (lambda t: {"layer1.weight": torch.ones(1)}, "no tensor backbone.res2.0.conv2.weight"),
        (lambda t: t | {"backbone.stem.norm.weight": torch.ones(3)}, "pre-activation"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, change, says):
    with pytest.raises(DataError) as caught:
        BottomUpExtractor(weights=save(change(published(make("caffe"), "caffe")), tmp_path / "w.pth"))
    assert says in str(caught.value)


def test_missing_weights_end_with_5_and_say_where_to_get_them(tmp_path, monkeypatch):
    picture().save(tmp_path / "a.png")
    recipe = "about: x\nstages: {regions: {kind: extract, extractor: {name: bottom-up, weights: bua.pth}, images: .}}\n"
    (tmp_path / "r.yaml").write_text(recipe)
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["extract", "--recipe", "r.yaml", f"root={tmp_path}"])
    assert ended.exit_code == 5, ended.stderr
    assert "docs/detectors.md" in ended.stderr
    with pytest.raises(DataError, match=r"docs/detectors\.md"):
        BottomUpExtractor(weights="none.pth")


def test_the_page_shows_how_to_convert_a_pickle(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tensors = {name: value.numpy() for name, value in blobs(make("vlp")).items()}
    (tmp_path / "detector.pkl").write_bytes(pickle.dumps({"blobs": tensors | {"weight_order": "x"}, "cfg": "y"}))
    (code,) = blocks((PROJECT / "docs/detectors.md").read_text(encoding="utf-8"), "python")
    exec(code, {})
    made = BottomUpExtractor(weights="detector.safetensors")
    assert made.detector.family.name == "vlp"
    assert set(made.report.left_over) == {"fc6_w_momentum", "lr"}


def test_caffe_anchors():
    """The table of rbgirshick/py-faster-rcnn's generate_anchors.py, counted from 0."""
    printed = [[-83, -39, 100, 56], [-175, -87, 192, 104], [-359, -183, 376, 200],
               [-55, -55, 72, 72], [-119, -119, 136, 136], [-247, -247, 264, 264],
               [-35, -79, 52, 96], [-79, -167, 96, 184], [-167, -343, 184, 360]]  # fmt: skip
    assert torch.equal(legacy_cells(16, (8.0, 16.0, 32.0)), torch.tensor(printed).float() - 1)


def test_detectron2_anchors():
    cells = centred_cells((64.0, 128.0))
    sides = cells[:, 2:] - cells[:, :2]
    assert torch.allclose(sides.prod(1).sqrt(), torch.tensor([64.0] * 3 + [128.0] * 3))
    assert torch.allclose(sides[:, 1] / sides[:, 0], torch.tensor([0.5, 1, 2] * 2))
    assert torch.allclose(cells[:, :2], -cells[:, 2:])


def test_a_checkpoint_brings_its_own_anchors(tmp_path):
    tensors = published(make("caffe"), "caffe", cells=True)
    name = "proposal_generator.anchor_generator.cell_anchors.0"
    tensors[name] = tensors[name] + 3
    made = BottomUpExtractor(weights=save(tensors, tmp_path / "w.pth"))
    assert torch.equal(made.detector.state_dict()[name], tensors[name])
    assert made.report.matched == len(tensors)


def caffe_proposals(detector, pixels, scale):
    """The proposal layer of py-faster-rcnn, in NumPy: decode, clip, filter, sort, suppress."""
    family = detector.proposal_generator.family
    maps = detector.backbone(pixels)[-1]
    logits, deltas = (x[0].double().numpy() for x in detector.proposal_generator.rpn_head(maps))
    count, height, width = logits.shape[0] // 2, *logits.shape[1:]
    scores = 1 / (1 + np.exp(logits[:count] - logits[count:]))
    cells = detector.proposal_generator.anchor_generator.cell_anchors.get_buffer("0").double().numpy()
    found = []
    for y in range(height):
        for x in range(width):
            for a in range(count):
                x1, y1, x2, y2 = cells[a] + [16 * x, 16 * y, 16 * x, 16 * y]
                w, h = x2 - x1 + 1, y2 - y1 + 1
                dx, dy, dw, dh = deltas[4 * a : 4 * a + 4, y, x]
                cx, cy = dx * w + x1 + w / 2, dy * h + y1 + h / 2
                w, h = np.exp(min(dw, np.log(1000 / 16))) * w, np.exp(min(dh, np.log(1000 / 16))) * h
                box = np.array([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])
                box = box.clip(0, np.array([pixels.shape[3], pixels.shape[2]] * 2) - 1.0)
                if box[2] - box[0] + 1 > 16 * scale and box[3] - box[1] + 1 > 16 * scale:
                    found.append((scores[a, y, x], box))
    found = sorted(found, key=lambda item: -item[0])[: family.before]
    kept: list[np.ndarray] = []
    for _, box in found:
        if all(_overlap(box, other) < 0.7 for other in kept):
            kept.append(box)
    return np.array(kept[: family.after])


def _overlap(a, b):
    size = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]) + 1, 0)
    areas = [np.prod(box[2:] - box[:2] + 1) for box in (a, b)]
    return size.prod() / (areas[0] + areas[1] - size.prod())


@torch.inference_mode()
def test_caffe_proposals_equal_a_slow_oracle(tmp_path):
    made = extractor(tmp_path)
    detector = made.detector
    detector.proposal_generator.rpn_head.objectness_logits.weight.mul_(0.1)  # far from 1, where float32 sees ties
    pixels = made.prepare(picture((120, 150)), None).pixels[None]
    scale = 96 / 120
    maps = detector.backbone(pixels)[-1:]
    ours = detector.proposal_generator(maps, tuple(pixels.shape[2:]), [scale])[0]
    theirs = caffe_proposals(detector, pixels, scale)
    assert len(theirs) > 10
    assert np.allclose(ours.numpy(), theirs, atol=1e-2)


@pytest.mark.parametrize("family", NAMES)
def test_store_of_each_family(tmp_path, family):
    made = extractor(tmp_path, family, class_probs="all")
    images = []
    for number, size in enumerate([(96, 128), (150, 100), (96, 128)]):
        picture(size, seed=number).save(tmp_path / f"{number}.png")
        images.append((str(number), tmp_path / f"{number}.png"))
    extract_images(images, made, tmp_path / "f.h5", dtype="float32")
    assert verify(tmp_path / "f.h5") == []
    store = FeatureStore(tmp_path / "f.h5")
    assert store.provenance["family"] == family
    assert store.provenance["rule"] == FAMILIES[family].rule
    for name in ("0", "1", "2"):
        record = store.read(name)
        assert 5 <= len(record) <= 12
        assert record.class_probs.shape[1] == 41
        assert np.allclose(record.class_probs.sum(1), 1, atol=1e-5)
        first = FAMILIES[family].background_first
        own = record.class_probs[:, 1:] if first else record.class_probs[:, :-1]
        picked = own[np.arange(len(record)), record.classes]
        assert np.allclose(picked, record.class_scores, atol=1e-6)
        if FAMILIES[family].rule != "detectron2" and FAMILIES[family].rule != "vlp":
            assert np.array_equal(record.classes, own.argmax(1))
        if family != "vlp":
            assert record.attributes.max() < 12  # "none" is never an attribute


def test_class_probabilities_without_the_background(tmp_path):
    whole, classes = (
        extractor(tmp_path, "vlp", class_probs=kind).extract([_prepared(tmp_path, "vlp")])[0].class_probs
        for kind in ("all", "classes")
    )
    assert np.array_equal(whole[:, 1:], classes)


def _prepared(tmp_path, family):
    return extractor(tmp_path, family).prepare(picture(), None)


@pytest.mark.parametrize("family", ["caffe", "airsplay"])
def test_given_boxes_give_what_detection_gave(tmp_path, family):
    """Unregressed boxes handed back as given ones bring the same features, classes and attributes."""
    found = extractor(tmp_path, family, rule="caffe").extract([_prepared(tmp_path, family)])[0]
    given = extractor(tmp_path, family, boxes="given", min_boxes=1, max_boxes=1)
    item = given.prepare(picture(), BoxList(found.boxes, box_ids=np.arange(len(found)).astype(str)))
    record = given.extract([item])[0]
    assert np.allclose(record.features, found.features, atol=1e-5)
    assert np.array_equal(record.classes, found.classes)
    assert np.array_equal(record.attributes, found.attributes)
    assert record.box_ids.tolist() == [str(i) for i in range(len(found))]
    assert given.provenance()["boxes"] == "given"


@torch.inference_mode()
@pytest.mark.parametrize(("family", "none"), [("caffe", 0), ("airsplay", 12), ("detectron2", None)])
def test_attribute_heads(tmp_path, family, none):
    """caffe counts "none" in its softmax, airsplay leaves it out before, MILVLG's own trainings have none."""
    detector = make(family)
    seen = torch.randn(5, detector.sizes.dim)
    probs, background, attributes = detector.roi_heads.classify(seen)
    logits = (
        seen @ detector.roi_heads.box_predictor.cls_score.weight.T + detector.roi_heads.box_predictor.cls_score.bias
    )
    head = detector.roi_heads.attributes
    joined = torch.cat([seen, head.embedding.weight[logits.argmax(1)]], 1)
    raw = head.score(torch.relu(head.hidden(joined)))
    kept = [column for column in range(raw.shape[1]) if column != none]
    expected = raw.softmax(1)[:, kept] if family == "caffe" else raw[:, kept].softmax(1)
    assert torch.allclose(attributes, expected, atol=1e-6)
    column = 0 if family == "caffe" else -1
    assert torch.allclose(background, logits.softmax(1)[:, column], atol=1e-6)
    assert probs.shape == (5, 40)


@torch.inference_mode()
def test_folding_changes_nothing():
    detector = make("detectron2")
    pixels = torch.randn(1, 3, 64, 80) * 40
    before = detector.backbone(pixels)[-1]
    detector.fold()
    assert torch.allclose(detector.backbone(pixels)[-1], before, atol=1e-4 * float(before.abs().max()))
