"""Sizes of a detector: chosen for random weights, read from the shapes of published ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from vlcli.errors import DataError, UsageError
from vlcli_bottom_up.families import Family

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
        """Width of a region's feature."""
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
            raise DataError(
                "these are not a detector's weights, or of a layout that is not known",
                where=where,
                got=f"no tensor {name}; first of {len(tensors)}: {', '.join(list(tensors)[:3])}",
                expected="one of the layouts of docs/detectors.md",
                hint="see docs/detectors.md, or say which: family: caffe, airsplay, detectron2 or vlp",
            )
        return tensors[name].shape

    def blocks(prefix: str) -> int:
        matches = (re.match(re.escape(prefix) + r"\.(\d+)\.conv1\.weight", name) for name in tensors)
        return max((int(match.group(1)) for match in matches if match), default=-1) + 1

    pyramid = "backbone.fpn_lateral2.weight" in tensors
    body = "backbone.bottom_up" if pyramid else "backbone"
    last = f"{body}.res5" if pyramid else "roi_heads.res5"
    inner, per_group = shape(f"{body}.res2.0.conv2.weight")[:2]
    classes = shape("roi_heads.box_predictor.cls_score.weight")[0] - 1
    head = "roi_heads.attributes.score.weight" in tensors
    return Architecture(
        blocks=(*(blocks(f"{body}.res{stage}") for stage in (2, 3, 4)), blocks(last)),
        stem=shape(f"{body}.stem.conv1.weight")[0],
        out=shape(f"{body}.res2.0.conv3.weight")[0],
        inner=inner,
        groups=inner // per_group,
        hidden=shape("proposal_generator.rpn_head.conv.weight")[0],
        anchors=shape("proposal_generator.rpn_head.anchor_deltas.weight")[0] // 4,
        classes=classes,
        attributes=shape("roi_heads.attributes.score.weight")[0] if head else 0,
        embedding=shape("roi_heads.attributes.embedding.weight")[1] if head else 0,
        attribute_hidden=shape("roi_heads.attributes.score.weight")[1] if head else 0,
        pyramid=shape("backbone.fpn_lateral2.weight")[0] if pyramid else 0,
        fc=shape("roi_heads.box_head.fc1.weight")[0] if pyramid else 0,
        one_box=shape("roi_heads.box_predictor.bbox_pred.weight")[0] == 4,
    )
