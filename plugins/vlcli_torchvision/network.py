"""A Faster R-CNN of torchvision's parts, with an attribute head where boxes have attributes."""

import re
from collections import OrderedDict
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.ops import FrozenBatchNorm2d

from vlcli.detection import TINY, TINY_WIDTHS, tiny_conv
from vlcli.errors import ComponentError

TINY_ANCHORS = (12, 24, 48, 96)
# Sides of the square anchors: all of them on the one map of the tiny network, one for each level of a pyramid
FPN_ANCHORS = (32, 64, 128, 256, 512)


class OneMap(nn.Module):
    """The small network's only map, as the pyramid that torchvision's heads expect."""

    def __init__(self) -> None:
        super().__init__()
        self.body = tiny_conv()
        self.out_channels = TINY_WIDTHS[-1]

    def forward(self, x: Tensor) -> OrderedDict[str, Tensor]:
        return OrderedDict([("0", self.body(x))])


class SameSize(GeneralizedRCNNTransform):  # type: ignore[misc]  # torchvision has no types
    """Normalises and pads, and leaves every picture at its size."""

    def resize(self, image: Tensor, target: dict[str, Tensor] | None = None) -> tuple[Tensor, dict[str, Tensor] | None]:
        return image, target


class MeanHead(nn.Module):
    """One layer over all cells of a region and one over their mean, added: small networks learn looks sooner by it."""

    def __init__(self, channels: int, cells: int, width: int) -> None:
        super().__init__()
        self.cells, self.mean = nn.Linear(channels * cells, width), nn.Linear(channels, width)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.cells(x.flatten(1)) + self.mean(x.mean((2, 3))))


class Predictor(FastRCNNPredictor):  # type: ignore[misc]
    """Classes and boxes of torchvision's head; in training, keeps its input for the attributes."""

    seen: Tensor | None = None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.seen = x if self.training else None
        return tuple(super().forward(x))


class AttributeHeads(RoIHeads):  # type: ignore[misc]
    """torchvision's box head with one more loss: the attribute of every box that shows an object.

    Anderson et al. 2018, section 3.1, where the attribute is predicted beside the class; here from the box alone.
    """

    def __init__(self, *parts: Any, width: int, attributes: int) -> None:
        super().__init__(*parts)
        self.attribute_predictor = nn.Linear(width, attributes)
        self._wanted: Tensor | None = None

    def select_training_samples(self, proposals: list[Tensor], targets: list[dict[str, Tensor]] | None) -> Any:
        chosen = super().select_training_samples(proposals, targets)
        _, matched, labels, _ = chosen
        assert targets is not None
        wanted = [
            torch.where(label > 0, target["attributes"][match] if len(target["attributes"]) else -1, -1)
            for label, match, target in zip(labels, matched, targets, strict=True)
        ]
        self._wanted = torch.cat(wanted)
        return chosen

    def forward(
        self,
        features: dict[str, Tensor],
        proposals: list[Tensor],
        image_shapes: list[tuple[int, int]],
        targets: list[dict[str, Tensor]] | None = None,
    ) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
        detections, losses = super().forward(features, proposals, image_shapes, targets)
        if self.training:
            seen, wanted = self.box_predictor.seen, self._wanted
            assert wanted is not None
            self.box_predictor.seen = self._wanted = None  # a graph that stays cannot be copied with the module
            known = wanted >= 0
            logits = self.attribute_predictor(seen[known]).float()  # (known boxes, attributes)
            total = functional.cross_entropy(logits, wanted[known], reduction="sum")
            losses["loss_attribute"] = total / known.sum().clamp(min=1)
        return detections, losses


# Names in torchvision's published files of two-stage detectors, and what they are called since version 0.13
OLD_NAMES = {
    r"(fpn\.(?:inner|layer)_blocks\.\d+)\.(weight|bias)$": r"\1.0.\2",
    r"(rpn\.head\.conv)\.(weight|bias)$": r"\1.0.0.\2",
}


def modern_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights under the names that torchvision's modules have today."""
    for pattern, name in OLD_NAMES.items():
        state = {re.sub(pattern, name, key): value for key, value in state.items()}
    return state


def backbone_of(name: str, norm: str) -> tuple[Any, int, int]:
    """Return a backbone with ``frozen`` or ``batch`` norms, the number of its maps, and its largest stride."""
    if name == TINY:
        return OneMap(), 1, 8
    resnet = name.startswith(("resnet", "resnext", "wide_resnet"))
    if not resnet or name not in torchvision.models.list_models():
        close = torchvision.models.list_models(include=f"{name[:6]}*") if resnet else []
        expected = ", ".join(close) if resnet else "tiny-conv or a ResNet of torchvision"
        raise ComponentError("There is no such backbone.", got=name, expected=expected)
    layer = FrozenBatchNorm2d if norm == "frozen" else nn.BatchNorm2d
    return resnet_fpn_backbone(backbone_name=name, weights=None, norm_layer=layer, trainable_layers=5), 5, 32
