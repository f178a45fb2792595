"""The sizes of a detector: chosen for random weights, read from the shapes of published ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from vlcli.errors import DataError, UsageError
from vlcli_bottom_up.families import Family

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
RATIOS = 3  # Every family's anchors have the ratios 1/2, 1 and 2


@dataclass(frozen=True)
class Architecture:
    """Sizes of a two-stage detector.

    Attributes:
        blocks: residual blocks of each stage.
        stem: channels after the first convolution.
        out: channels after the second stage; each stage doubles them.
        inner: bottleneck channels of the second stage.
        groups: of the 3x3 convolutions (ResNeXt).
        hidden: channels inside the proposal network.
        anchors: of each cell (and level).
        classes: without the background.
        attributes: outputs of the attribute head, "none" included where it has it; 0 for no such head.
        embedding: width of its class embedding.
        attribute_hidden: width of its hidden layer.
        pyramid: channels of a feature pyramid; 0 for the last stage on each region (C4).
        fc: width of the two layers on a pyramid's regions.
        one_box: one regressed box for all classes.
    """

    blocks: tuple[int, ...] = BLOCKS[101]
    stem: int = 64
    out: int = 256
    inner: int = 64
    groups: int = 1
    hidden: int = 512
    anchors: int = 12
    classes: int = 1600
    attributes: int = 401
    embedding: int = 256
    attribute_hidden: int = 512
    pyramid: int = 0
    fc: int = 1024
    one_box: bool = False

    @property
    def dim(self) -> int:
        """Width of a region's feature."""
        return self.fc if self.pyramid else self.out * 8


def published(family: Family, depth: int, cardinality: int, width: int, pyramid: int | None) -> Architecture:
    """The sizes a family is published with, or what the options say instead.

    Args:
        family: conventions.
        depth: 50, 101 or 152.
        cardinality: groups of the 3x3 convolutions; 0 for the family's own.
        width: channels of one group in the second stage; 0 for the family's own.
        pyramid: channels of the pyramid; 0 for none, None for the family's own.

    Raises:
        UsageError: another depth, or a pyramid where the family has none.
    """
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


class _Shapes:
    def __init__(self, tensors: Mapping[str, Tensor], where: str) -> None:
        self.shapes = {name: tuple(value.shape) for name, value in tensors.items()}
        self.where = where

    def __getitem__(self, name: str) -> tuple[int, ...]:
        try:
            return self.shapes[name]
        except KeyError:
            raise DataError(
                "these are not a detector's weights, or of a layout that is not known",
                where=self.where,
                got=f"no tensor {name}; first of {len(self.shapes)}: {', '.join(list(self.shapes)[:3])}",
                expected="one of the layouts of docs/detectors.md",
                hint="see docs/detectors.md, or say which: family: caffe, airsplay, detectron2 or vlp",
            ) from None

    def blocks(self, prefix: str) -> int:
        found = [re.match(re.escape(prefix) + r"\.(\d+)\.conv1\.weight", name) for name in self.shapes]
        return max([int(match.group(1)) for match in found if match], default=-1) + 1


def read_architecture(tensors: Mapping[str, Tensor], where: str) -> Architecture:
    """Sizes from the shapes of tensors under detectron2's names.

    Raises:
        DataError: a tensor that every detector has is missing.
    """
    shapes = _Shapes(tensors, where)
    pyramid = "backbone.fpn_lateral2.weight" in shapes.shapes
    body = "backbone.bottom_up" if pyramid else "backbone"
    last = f"{body}.res5" if pyramid else "roi_heads.res5"
    inner, per_group = shapes[f"{body}.res2.0.conv2.weight"][:2]
    classes = shapes["roi_heads.box_predictor.cls_score.weight"][0] - 1
    head = "roi_heads.attributes.score.weight" in shapes.shapes
    return Architecture(
        blocks=(*(shapes.blocks(f"{body}.res{stage}") for stage in (2, 3, 4)), shapes.blocks(last)),
        stem=shapes[f"{body}.stem.conv1.weight"][0],
        out=shapes[f"{body}.res2.0.conv3.weight"][0],
        inner=inner,
        groups=inner // per_group,
        hidden=shapes["proposal_generator.rpn_head.conv.weight"][0],
        anchors=shapes["proposal_generator.rpn_head.anchor_deltas.weight"][0] // 4,
        classes=classes,
        attributes=shapes["roi_heads.attributes.score.weight"][0] if head else 0,
        embedding=shapes["roi_heads.attributes.embedding.weight"][1] if head else 0,
        attribute_hidden=shapes["roi_heads.attributes.score.weight"][1] if head else 0,
        pyramid=shapes["backbone.fpn_lateral2.weight"][0] if pyramid else 0,
        fc=shapes["roi_heads.box_head.fc1.weight"][0] if pyramid else 0,
        one_box=shapes["roi_heads.box_predictor.bbox_pred.weight"][0] == 4,
    )
