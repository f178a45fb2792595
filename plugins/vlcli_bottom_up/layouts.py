"""Names in published checkpoints: which family they are, and what detectron2 would call the same tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

from vlcli.errors import DataError
from vlcli_bottom_up.families import FamilyName

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
        raise DataError(
            "detectors with pre-activation residual blocks are not supported",
            where=where,
            got="backbone.stem.norm.weight (bua-caffe-frcn-r152)",
            expected="a ResNet-101 of the same family, or MILVLG's detectron2-mode X152",
            hint="see docs/detectors.md",
        )
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
    for theirs, ours in RENAMED.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name


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
