"""Narrow detectors of every family, and their weights under the names that are published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from vlcli_bottom_up import FAMILIES, Detector
from vlcli_bottom_up.extractor import draw
from vlcli_bottom_up.families import Architecture

C4 = Architecture(
    blocks=(1, 1, 2, 3), stem=8, out=16, inner=4, hidden=16, anchors=12, classes=40, attributes=13, embedding=8,
    attribute_hidden=16,
)  # fmt: skip
FPN = replace(C4, blocks=(1, 1, 2, 1), inner=16, groups=4, hidden=16, anchors=3, attributes=0, pyramid=16, fc=24)
HEADS = {
    "caffe": {"embedding": "box_predictor.cls_embed", "hidden": "box_predictor.attr_linear1",
              "score": "box_predictor.attr_linear2"},
    "airsplay": {"embedding": "box_predictor.cls_embedding", "hidden": "box_predictor.fc_attr",
                 "score": "box_predictor.attr_score"},
    "detectron2": {"embedding": "attribute_predictor.obj_embed", "hidden": "attribute_predictor.fc.0",
                   "score": "attribute_predictor.attr_score"},
    "vlp": {},
}  # fmt: skip


def sizes_of(family: str) -> Architecture:
    if family == "vlp":
        return FPN
    return replace(C4, anchors=15, attributes=12) if family == "detectron2" else C4


@torch.no_grad()
def make(family: str, seed: int = 0, sizes: Architecture | None = None) -> Detector:
    """A narrow detector whose heads say different things of different regions."""
    torch.manual_seed(seed)
    detector = Detector(FAMILIES[family], sizes or sizes_of(family)).eval()
    draw(detector)
    for name, value in detector.named_parameters():
        if "norm" not in name and value.ndim > 1 and name.split(".")[0] != "backbone" and "res5" not in name:
            value.normal_(std=2.0 / np.sqrt(value[0].numel()))
        if "fpn" in name and value.ndim > 1:
            value.normal_(std=1.0 / np.sqrt(value[0].numel()))
    detector.roi_heads.box_predictor.bbox_pred.weight.mul_(0.3)
    detector.proposal_generator.rpn_head.anchor_deltas.weight.mul_(0.3)
    return detector


def published(detector: Detector, family: str, cells: bool = False) -> dict[str, torch.Tensor]:
    """Its tensors as a checkpoint of that family names them."""
    made = {}
    for name, value in detector.state_dict().items():
        if "cell_anchors" not in name or cells:
            made[_theirs(name, family)] = value.clone()
    return made


def _theirs(name: str, family: str) -> str:
    for ours, theirs in HEADS[family].items():
        if name.startswith(f"roi_heads.attributes.{ours}."):
            return name.replace(f"attributes.{ours}", theirs)
    return name


def save(tensors: dict[str, torch.Tensor], path: Path) -> str:
    torch.save({"model": tensors, "iteration": 3}, path)
    return str(path)


def picture(size: tuple[int, int] = (96, 128), seed: int = 0) -> Image.Image:
    """Coloured rectangles on noise: something to tell apart."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 60, (*size, 3), dtype=np.uint8)
    for _ in range(8):
        y, x = generator.integers(0, size[0] - 20), generator.integers(0, size[1] - 20)
        pixels[y : y + generator.integers(10, 60), x : x + generator.integers(10, 60)] = generator.integers(0, 255, 3)
    return Image.fromarray(pixels)
