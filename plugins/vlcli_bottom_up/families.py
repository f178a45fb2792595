"""The published families of Visual Genome detectors: preparation, boxes, heads, sizes, and names of their weights.

A :class:`Family` cannot be read off a checkpoint; an :class:`Architecture` (depth, widths, classes) can.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from vlcli.detection import DETECTRON_MEAN, Resize, RuleName
from vlcli.errors import DataError, UsageError

FamilyName = Literal["caffe", "airsplay", "detectron2", "vlp"]
IMAGENET_MEAN = (103.530, 116.280, 123.675)


@dataclass(frozen=True)
class Family:
    """Preprocessing, network and box conventions of one family of published detectors."""

    name: FamilyName  # the family
    mean: tuple[float, float, float]  # of BGR in 0..255
    rule: RuleName  # its own selection
    short: int = 600  # pixels of the shorter side
    long: int = 1000  # most pixels of the longer side
    # ``float``: mean taken off, then bilinear samples as OpenCV takes them, one factor for both sides; ``image``: 8-bit
    # and antialiased as Pillow does it, one factor per side
    resize: Resize = "image"
    multiple: int = 32  # sides are padded with zeros to a multiple of this (pyramids)
    clip_to_padding: bool = False  # proposals may reach into that padding (Detectron)
    caffe_pool: bool = False  # first pooling without padding, rounding up
    stride_in_1x1: bool | None = True  # where a stage's stride sits; None: in the 1x1 unless convolutions are grouped
    dilated: bool = False  # last stage at stride 1 with dilation 2
    legacy: bool = False  # a box's far corner is its last pixel: widths are one more, the limit is the last pixel
    # regression keeps to that (Detectron); the Caffe code adds one and does not take it off again
    inclusive: bool = False
    filter_first: bool = False  # boxes are clipped and filtered before the strongest are taken, not after
    min_size: float = 0.0  # proposals smaller than this, in original pixels, are dropped
    strict_min: bool = True  # exactly ``min_size`` is too small as well
    before: int = 6000  # proposals taken to suppression (of each level)
    after: int = 300  # proposals left by it
    softmax_objectness: bool = False  # two channels an anchor (all backgrounds first), not one
    background_first: bool = False  # class 0 is the background, not the last one; its regression columns exist too
    # what box deltas were multiplied by in training
    box_weights: tuple[float, float, float, float] = (10.0, 10.0, 5.0, 5.0)
    # where the attribute head has "none": ``first`` (counted), ``last`` (left out before the softmax), or ``absent``
    none_attribute: Literal["first", "last", "absent"] = "absent"
    # regions are cut by RoIPool or by RoIAlign, half a pixel shifted (``align``) or not (``align-legacy``)
    pool: Literal["pool", "align", "align-legacy"] = "pool"
    resolution: tuple[int, int] = (14, 7)  # cells per side of a region; for C4 and for a pyramid
    # RoIAlign's samples per side of a cell (0 adapts to the box); with an attribute head and without
    sampling: tuple[int, int] = (2, 2)
    # anchor sizes; of the one map, or of each level of a pyramid
    sizes: tuple[float, ...] = (64.0, 128.0, 256.0, 512.0)
    level_epsilon: float = 1e-8  # in the rule that sends a region to its level


FAMILIES: dict[FamilyName, Family] = {
    # Anderson et al. 2018 (lib/rpn, tools/generate_tsv.py) and MILVLG/bottom-up-attention.pytorch, mode caffe.
    "caffe": Family(
        "caffe",
        DETECTRON_MEAN,
        "caffe",
        resize="float",
        caffe_pool=True,
        dilated=True,
        legacy=True,
        filter_first=True,
        min_size=16.0,
        softmax_objectness=True,
        background_first=True,
        box_weights=(1.0, 1.0, 1.0, 1.0),
        none_attribute="first",
    ),
    # airsplay/py-bottom-up-attention and the LXMERT detector of earlier transformers releases.
    "airsplay": Family("airsplay", DETECTRON_MEAN, "airsplay", caffe_pool=True, dilated=True, none_attribute="last"),
    # detectron2 as it stands; MILVLG's own trainings (R50, R101, X152) add an attribute head.
    "detectron2": Family(
        "detectron2",
        IMAGENET_MEAN,
        "detectron2",
        stride_in_1x1=None,
        after=1000,
        pool="align",
        # MILVLG's base-d2.yaml says POOLER_SAMPLING_RATIO: 2; detectron2's own default, and so its zoo's, is 0.
        sampling=(2, 0),
        sizes=(32.0, 64.0, 128.0, 256.0, 512.0),
    ),
    # LuoweiZhou/detectron-vlp over Detectron's X-101-64x4d-FPN_2x; its configuration file is not public.
    "vlp": Family(
        "vlp",
        DETECTRON_MEAN,
        "vlp",
        short=800,
        long=1333,
        resize="float",
        clip_to_padding=True,
        stride_in_1x1=None,
        legacy=True,
        inclusive=True,
        strict_min=False,
        before=1000,
        after=1000,
        background_first=True,
        none_attribute="first",
        pool="align-legacy",
        sizes=(32.0, 64.0, 128.0, 256.0, 512.0),
        level_epsilon=1e-6,
    ),
}

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
RATIOS = 3  # Every family's anchors have the ratios 1/2, 1 and 2


@dataclass(frozen=True)
class Architecture:
    """Sizes of a two-stage detector."""

    blocks: tuple[int, ...] = BLOCKS[101]  # residual blocks of each stage
    stem: int = 64  # channels after the first convolution
    out: int = 256  # channels after the second stage; each stage doubles them
    inner: int = 64  # bottleneck channels of the second stage
    groups: int = 1  # of the 3x3 convolutions (ResNeXt)
    hidden: int = 512  # channels inside the proposal network
    anchors: int = 12  # of each cell (and level)
    classes: int = 1600  # without the background
    attributes: int = 401  # outputs of the attribute head, "none" included where it has it; 0 for no such head
    embedding: int = 256  # width of its class embedding
    attribute_hidden: int = 512  # width of its hidden layer
    pyramid: int = 0  # channels of a feature pyramid; 0 for the last stage on each region (C4)
    fc: int = 1024  # width of the two layers on a pyramid's regions
    one_box: bool = False  # one regressed box for all classes

    @property
    def dim(self) -> int:
        return self.fc if self.pyramid else self.out * 8


def published(family: Family, depth: int, cardinality: int, width: int, pyramid: int | None) -> Architecture:
    """Return the sizes a family is published with, unless options (0 or None: the family's) say otherwise."""
    if depth not in BLOCKS:
        raise UsageError("no detector of this depth", got=str(depth), expected="depth: 50, 101 or 152")
    vlp = family.name == "vlp"
    groups = cardinality or (64 if vlp else 1)
    inner = groups * (width or (4 if groups == 64 else 8 if groups > 1 else 64))
    pyramid = (256 if vlp else 0) if pyramid is None else pyramid
    if pyramid and family.name in ("caffe", "airsplay"):
        raise UsageError(f"the family {family.name} has no pyramid", expected="family: vlp or detectron2")
    return Architecture(
        blocks=BLOCKS[depth],
        inner=inner,
        groups=groups,
        hidden=pyramid or (1024 if family.name == "detectron2" else 512),
        anchors=RATIOS if pyramid else RATIOS * len(family.sizes),
        attributes=0 if vlp else 400 if family.none_attribute == "absent" else 401,
        pyramid=pyramid,
        fc=2048 if vlp else 1024,
    )


def read_architecture(tensors: Mapping[str, Tensor], where: str) -> Architecture:
    """Return the sizes of tensors under detectron2's names."""

    def shape(name: str) -> Sequence[int]:
        if name not in tensors:
            what = "these are not a detector's weights, or of a layout that is not known"
            got = f"no tensor {name}; first of {len(tensors)}: {', '.join(list(tensors)[:3])}"
            hint = "see docs/detectors.md, or say which: family: caffe, airsplay, detectron2 or vlp"
            raise DataError(what, where=where, got=got, expected="one of the layouts of docs/detectors.md", hint=hint)
        return tensors[name].shape

    def blocks(prefix: str) -> int:
        return sum(re.fullmatch(re.escape(prefix) + r"\.\d+\.conv1\.weight", name) is not None for name in tensors)

    pyramid = "backbone.fpn_lateral2.weight" in tensors
    body = "backbone.bottom_up" if pyramid else "backbone"
    stages = *(f"{body}.res{number}" for number in (2, 3, 4)), f"{body if pyramid else 'roi_heads'}.res5"
    inner, per_group = shape(f"{body}.res2.0.conv2.weight")[:2]
    head = "roi_heads.attributes.score.weight" in tensors
    return Architecture(
        blocks=tuple(map(blocks, stages)),
        stem=shape(f"{body}.stem.conv1.weight")[0],
        out=shape(f"{body}.res2.0.conv3.weight")[0],
        inner=inner,
        groups=inner // per_group,
        hidden=shape("proposal_generator.rpn_head.conv.weight")[0],
        anchors=shape("proposal_generator.rpn_head.anchor_deltas.weight")[0] // 4,
        classes=shape("roi_heads.box_predictor.cls_score.weight")[0] - 1,
        attributes=shape("roi_heads.attributes.score.weight")[0] if head else 0,
        embedding=shape("roi_heads.attributes.embedding.weight")[1] if head else 0,
        attribute_hidden=shape("roi_heads.attributes.score.weight")[1] if head else 0,
        pyramid=shape("backbone.fpn_lateral2.weight")[0] if pyramid else 0,
        fc=shape("roi_heads.box_head.fc1.weight")[0] if pyramid else 0,
        one_box=shape("roi_heads.box_predictor.bbox_pred.weight")[0] == 4,
    )


NORM_EPS = 1e-5
PREDICTOR = "roi_heads.box_predictor."
ATTRIBUTES = "roi_heads.attributes."
RENAMED = {
    # MILVLG, mode caffe
    f"{PREDICTOR}cls_embed.": f"{ATTRIBUTES}embedding.",
    f"{PREDICTOR}attr_linear1.": f"{ATTRIBUTES}hidden.",
    f"{PREDICTOR}attr_linear2.": f"{ATTRIBUTES}score.",
    # airsplay and transformers
    f"{PREDICTOR}cls_embedding.": f"{ATTRIBUTES}embedding.",
    f"{PREDICTOR}fc_attr.": f"{ATTRIBUTES}hidden.",
    f"{PREDICTOR}attr_score.": f"{ATTRIBUTES}score.",
    # MILVLG, mode detectron2
    "roi_heads.attribute_predictor.obj_embed.": f"{ATTRIBUTES}embedding.",
    "roi_heads.attribute_predictor.fc.0.": f"{ATTRIBUTES}hidden.",
    "roi_heads.attribute_predictor.attr_score.": f"{ATTRIBUTES}score.",
}
# Tensors of checkpoints that a detector at work does not read: training state, an ImageNet classifier
UNNEEDED = ("pixel_mean", "pixel_std", "*_momentum", "lr", "weight_order", "pred", "pred_[wb]", "fc1000_[wb]")

CAFFE2 = {
    "conv1": "backbone.bottom_up.stem.conv1",
    "res_conv1_bn": "backbone.bottom_up.stem.conv1.norm",
    "fc6": "roi_heads.box_head.fc1",
    "fc7": "roi_heads.box_head.fc2",
    "cls_score": f"{PREDICTOR}cls_score",
    "bbox_pred": f"{PREDICTOR}bbox_pred",
    "fc_attr": f"{ATTRIBUTES}hidden",
    "attr_score": f"{ATTRIBUTES}score",
    "conv_rpn_fpn2": "proposal_generator.rpn_head.conv",
    "rpn_cls_logits_fpn2": "proposal_generator.rpn_head.objectness_logits",
    "rpn_bbox_pred_fpn2": "proposal_generator.rpn_head.anchor_deltas",
}
BRANCHES = {"branch1": "shortcut", "branch2a": "conv1", "branch2b": "conv2", "branch2c": "conv3"}


def recognise(names: Iterable[str], shapes: Mapping[str, tuple[int, ...]], where: str) -> FamilyName:
    """The family of a checkpoint, by its names and shapes."""
    known = set(names)
    if "conv1_w" in known:
        return "vlp"
    if "backbone.stem.norm.weight" in known:
        what = "detectors with pre-activation residual blocks are not supported"
        got = "backbone.stem.norm.weight (bua-caffe-frcn-r152)"
        expected = "a ResNet-101 of the same family, or MILVLG's detectron2-mode X152"
        raise DataError(what, where=where, got=got, expected=expected, hint="see docs/detectors.md")
    objectness = shapes.get("proposal_generator.rpn_head.objectness_logits.weight", (0,))[0]
    deltas = shapes.get("proposal_generator.rpn_head.anchor_deltas.weight", (0,))[0]
    if objectness and objectness * 2 == deltas:
        return "caffe"
    if f"{PREDICTOR}cls_embedding.weight" in known or (deltas == 48 and "backbone.fpn_lateral2.weight" not in known):
        return "airsplay"
    return "detectron2"


def canonical(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors under detectron2's names, attribute heads under one name; others keep theirs."""
    rename = _from_caffe2 if "conv1_w" in tensors else _from_detectron2
    renamed = {rename(name): value for name, value in tensors.items()}
    # mean 0 and deviation 1 for norms that come as a scale and a shift only (Caffe2, converted Caffe)
    statistics: dict[str, Tensor] = {}
    for name, value in renamed.items():
        stem = name.removesuffix("weight")
        absent = f"{stem}running_mean" not in renamed and f"{stem}running_var" not in renamed
        if name.endswith(".norm.weight") and absent:
            statistics[f"{stem}running_mean"] = value.new_zeros(value.shape)
            statistics[f"{stem}running_var"] = value.new_ones(value.shape) - NORM_EPS
    return renamed | statistics


def _from_detectron2(name: str) -> str:
    return next((ours + name.removeprefix(old) for old, ours in RENAMED.items() if name.startswith(old)), name)


def _from_caffe2(name: str) -> str:
    # A Caffe2 blob (Detectron): ``res2_0_branch2a_bn_s`` is ``...res2.0.conv1.norm.weight``
    if name == "class_embedding":
        return f"{ATTRIBUTES}embedding.weight"
    match = re.fullmatch(r"(.+)_([wbs])", name)
    if not match:
        return name
    stem, kind = match.groups()
    suffix = "bias" if kind == "b" else "weight"
    if stem in CAFFE2:
        return f"{CAFFE2[stem]}.{suffix}"
    if block := re.fullmatch(r"res(\d)_(\d+)_(branch\w+?)(_bn)?", stem):
        stage, index, branch, norm = block.groups()
        if branch in BRANCHES:
            return f"backbone.bottom_up.res{stage}.{index}.{BRANCHES[branch]}{'.norm' if norm else ''}.{suffix}"
    if level := re.fullmatch(r"fpn_(inner_)?res(\d)_\d+_sum(_lateral)?", stem):
        return f"backbone.fpn_{'lateral' if level.group(1) else 'output'}{level.group(2)}.{suffix}"
    return name
