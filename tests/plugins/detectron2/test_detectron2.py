"""The extractor ``detectron2``, and ``bottom-up`` beside it with the same weights; the package is optional."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner
from vlcli_bottom_up import BottomUpExtractor
from vlcli_detectron2 import Detectron2Extractor
from vlcli_detectron2.extractor import INSTALL, read_config

from tests.plugins.detectors import picture
from vlcli import registry
from vlcli.cli import app
from vlcli.cli.doctor import component_findings
from vlcli.detection.extraction import extract_images
from vlcli.errors import ComponentError, DataError, UsageError
from vlcli.features import FeatureStore
from vlcli.images.boxes import BoxList
from vlcli.recipe.load import load
from vlcli.recipe.validate import shallow

PRESENT = importlib.util.find_spec("detectron2") is not None
needs = pytest.mark.skipif(not PRESENT, reason="detectron2 is not installed")
COMMON = ("MODEL.RESNETS.DEPTH", "50", "MODEL.RESNETS.STEM_OUT_CHANNELS", "16", "MODEL.RESNETS.RES2_OUT_CHANNELS", "32",
          "MODEL.RESNETS.WIDTH_PER_GROUP", "8", "MODEL.MASK_ON", "False", "INPUT.MIN_SIZE_TEST", 300,
          "INPUT.MAX_SIZE_TEST", 500)  # fmt: skip
MILVLG = ("MODEL.ROI_BOX_HEAD.POOLER_SAMPLING_RATIO", 2)
"""As in its base-d2.yaml; detectron2's zoo keeps the default, 0."""
C4 = (*COMMON, "MODEL.ROI_HEADS.NUM_CLASSES", "1600", "MODEL.RPN.POST_NMS_TOPK_TEST", "150")
FPN = (*COMMON, "MODEL.RESNETS.NUM_GROUPS", "4", "MODEL.RESNETS.STRIDE_IN_1X1", "False", "MODEL.FPN.OUT_CHANNELS", "32",
       "MODEL.ROI_BOX_HEAD.FC_DIM", "64", "MODEL.ROI_HEADS.NUM_CLASSES", "80", "MODEL.RPN.PRE_NMS_TOPK_TEST", "1000",
       "MODEL.RPN.POST_NMS_TOPK_TEST", "150")  # fmt: skip
SIDES = {"short": 300, "long": 500, "proposals": 150}
MODELS = {
    "c4": "COCO-Detection/faster_rcnn_R_101_C4_3x.yaml",
    "fpn": "COCO-Detection/faster_rcnn_X_101_32x8d_FPN_3x.yaml",
}
PUBLISHED = {"embedding": "obj_embed", "hidden": "fc.0", "score": "attr_score"}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.skipif(PRESENT, reason="detectron2 is installed")
def test_absent_it_is_refused_with_the_command_that_installs_it():
    with pytest.raises(ComponentError) as caught:
        registry.build("extractors", {"name": "detectron2"})
    assert "pip install 'setuptools>=77,<82' wheel && pip install --no-build-isolation" in str(caught.value)


RECIPE = "root: .\nstages: {{regions: {{kind: extract, images: ., extractor: {{name: {name}}}}}}}\n"


@pytest.mark.skipif(PRESENT, reason="detectron2 is installed")
def test_its_absence_is_said_before_anything_is_imported_or_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(RECIPE.format(name="detectron2"))
    (problem,) = shallow(load("mine.yaml", []))
    assert (problem.code, problem.got, problem.hint) == (4, "missing: detectron2", INSTALL)
    assert problem.where.startswith("mine.yaml:2")
    assert shallow(load("mine.yaml", []), names=[]) == []  # of no concern where that stage is not run
    ended = CliRunner().invoke(app, ["validate", "mine.yaml"])
    assert ended.exit_code != 0
    assert "setuptools>=77" in ended.output
    listed = CliRunner().invoke(app, ["ls", "extractors", "--check", "--json"])
    rows = {row["name"]: row for row in json.loads(listed.stdout)["components"]}
    assert rows["detectron2"]["lacks"] == f"missing: detectron2; {INSTALL}"
    assert rows["detectron2"]["broken"] == rows["backbone"]["lacks"] == ""
    found = component_findings(0, listed.stdout, "")
    assert [(f.what, f.state, f.detail, f.remedy) for f in found if f.state != "ok" and "fake" not in f.what] == [
        ("extractor detectron2", "note", "missing: detectron2", INSTALL)
    ]


def test_overrides_take_numbers():
    spec = {"name": "detectron2", "overrides": ["INPUT.MIN_SIZE_TEST", 160, "MODEL.MASK_ON", False, "X", 0.5]}
    faults = [fault for fault in registry.check("extractors", spec) if "overrides" in fault.key]
    assert faults == []
    for bad in (["INPUT.MIN_SIZE_TEST"], [160, "INPUT.MIN_SIZE_TEST"]):
        with pytest.raises(UsageError, match="keys and values in turn"):
            read_config("COCO-Detection/faster_rcnn_R_50_C4_1x.yaml", bad, "cpu")


@needs
def test_class_names_come_from_the_configurations_data_set():
    named = Detectron2Extractor(config=MODELS["fpn"], overrides=FPN).provenance()
    assert (named["classes"][0], named["classes"][79], len(named["classes"])) == ("person", "toothbrush", 80)
    assert (named["class_ids"][0], named["class_ids"][79]) == (1, 90)
    assert "classes" not in Detectron2Extractor(config=MODELS["c4"], overrides=C4).provenance()  # 1600 of Visual Genome


@torch.no_grad()
def enliven(made: Detectron2Extractor) -> None:
    """Random weights that neither blow up through the frozen norms nor say the same of every region."""
    torch.manual_seed(0)
    for name, module in made.detector.model.named_modules():
        if type(module).__name__ == "FrozenBatchNorm2d":
            module.weight.fill_(0.2 if "conv3" in name else 0.7)
    model = made.detector.model
    model.proposal_generator.rpn_head.objectness_logits.weight.mul_(5)
    model.proposal_generator.rpn_head.anchor_deltas.weight.mul_(5)
    model.roi_heads.box_predictor.cls_score.weight.mul_(30)
    model.roi_heads.box_predictor.bbox_pred.weight.mul_(30)
    for value in made.detector.attributes.parameters() if made.detector.attributes else ():
        value.normal_(std=0.1)


def save(made: Detectron2Extractor, path) -> str:
    """Under the names of MILVLG's checkpoints."""
    tensors = {name: value.clone() for name, value in made.detector.model.state_dict().items()}
    for name, value in made.detector.attributes.state_dict().items() if made.detector.attributes else ():
        head, part = name.rsplit(".", 1)
        tensors[f"roi_heads.attribute_predictor.{PUBLISHED[head]}.{part}"] = value.clone()
    save_file(tensors, path)
    return str(path)


def run(made, images, path) -> FeatureStore:
    extract_images(images, made, path, dtype="float32")
    return FeatureStore(path)


@needs
@pytest.mark.parametrize("kind", ["c4", "c4-zoo", "fpn"])
@pytest.mark.parametrize("rule", ["detectron2", "airsplay", "vlp"])
def test_bottom_up_says_what_detectron2_says(shared, tmp_path, kind, rule):
    files = sorted((shared / "data/images/coco").iterdir())[:5]
    images = [(file.stem, file) for file in files]
    options = {"rule": rule, "confidence": 1e-3, "min_boxes": 36, "max_boxes": 36, "class_probs": "all"}
    attributes, kind = 400 * (kind == "c4"), kind.removesuffix("-zoo")
    overrides = ((*C4, *MILVLG) if attributes else C4) if kind == "c4" else FPN
    network = {"config": MODELS[kind], "overrides": overrides, "attributes": attributes}
    first = Detectron2Extractor(**network, **options)
    enliven(first)
    weights = save(first, tmp_path / "w.safetensors")
    theirs = Detectron2Extractor(**network, **options, weights=weights, feature="first" if kind == "fpn" else "last")
    more = {} if kind == "c4" else {"deviation": (57.375, 57.12, 58.395), "proposals_before": 1000}
    ours = BottomUpExtractor(weights=weights, **SIDES, **options, **more)
    assert ours.detector.family.name == "detectron2"
    a, b = run(ours, images, tmp_path / "a.h5"), run(theirs, images, tmp_path / "b.h5")
    for name, _ in images:
        one, other = a.read(name), b.read(name)
        assert len(one) == len(other) > 0
        assert np.abs(one.features).mean() > 0.01
        assert np.allclose(one.boxes, other.boxes, atol=1e-2)
        assert np.allclose(one.features, other.features, atol=1e-4)
        assert np.array_equal(one.classes, other.classes)
        assert np.allclose(one.class_probs, other.class_probs, atol=1e-4)
        if attributes:
            assert np.array_equal(one.attributes, other.attributes)


@needs
@pytest.mark.parametrize(("kind", "sizes"), [("c4", C4), ("fpn", FPN)])
def test_it_equals_detectron2s_own_inference(shared, kind, sizes):
    overrides = (*sizes, "MODEL.ROI_HEADS.SCORE_THRESH_TEST", "0.001", "TEST.DETECTIONS_PER_IMAGE", "50")
    made = Detectron2Extractor(config=MODELS[kind], overrides=overrides, min_boxes=0, max_boxes=50)
    enliven(made)
    from vlcli.images.files import open_image

    for file in sorted((shared / "data/images/coco").iterdir())[:3]:
        image = open_image(file)
        item = made.prepare(image, None)
        record = made.extract([item])[0]
        inputs = [{"image": item.pixels, "height": image.height, "width": image.width}]
        with torch.inference_mode():
            found = made.detector.model.inference(inputs)[0]["instances"]
        assert len(found) == len(record) > 0
        assert np.allclose(found.pred_boxes.tensor.numpy(), record.boxes, atol=1e-2)
        assert np.array_equal(found.pred_classes.numpy(), record.classes)
        assert np.allclose(found.scores.numpy(), record.scores, atol=1e-5)


@needs
def test_given_boxes_and_errors(tmp_path):
    made = Detectron2Extractor(config=MODELS["c4"], overrides=C4, boxes="given")
    boxes = BoxList(np.array([[0, 0, 50, 40], [10, 10, 90, 90]], np.float32))
    record = made.extract([made.prepare(picture(), boxes)])[0]
    assert record.features.shape == (2, made.dim)
    assert np.array_equal(record.boxes, boxes.boxes)
    with pytest.raises(DataError, match="configuration"):
        Detectron2Extractor(config="COCO-Detection/nothing.yaml")
    with pytest.raises(DataError, match=r"docs/detectors\.md"):
        Detectron2Extractor(config=MODELS["c4"], overrides=C4, weights=str(tmp_path / "none.pth"))
