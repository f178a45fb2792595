"""The model ``faster-rcnn``: a detector that is trained on one's own boxes."""

from contextlib import ExitStack
from typing import Literal

import torch
from torch import Tensor
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import TwoMLPHead
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.ops import MultiScaleRoIAlign

import vlcli.nn as vl
from vlcli.errors import ComponentError, DataError
from vlcli_torchvision.network import (
    FPN_ANCHORS,
    TINY_ANCHORS,
    AttributeHeads,
    MeanHead,
    Predictor,
    SameSize,
    backbone_of,
    modern_names,
)
from vlcli_torchvision.pooling import SampledRoIAlign, box_features, look, scaled

LOSSES = {
    "loss_objectness": "objectness",
    "loss_rpn_box_reg": "proposal",
    "loss_classifier": "class",
    "loss_box_reg": "box",
    "loss_attribute": "attribute",
}


class FasterRCNN(vl.Model):
    """Faster R-CNN on torchvision's machinery: proposals, classes, boxes and, where the data have them, attributes.

    Trained by the task ``detection`` (objective ``detection``); the extractor ``torchvision`` takes its features.

    Args:
        data_spec: ``region_classes`` and ``region_attributes``.
        backbone: ``tiny-conv`` (five small convolutions, one map of stride 8) or torchvision's ResNets with a pyramid.
        weights: local file the ResNet starts from, by torchvision's names.
        norm: of a ResNet: ``frozen`` statistics, as published weights need, or ``batch`` from scratch.
        short: pixels of the picture's shorter side; 0 keeps its size.
        long: most pixels of the longer side; 0 for no limit.
        anchors: sides of the anchors; none: those that suit the backbone (one for each level of a pyramid).
        ratios: heights of an anchor by its widths.
        head: of a box: ``mlp``, two layers over its cells, or ``mean``, one over its cells and one over their mean.
        width: of a box's features.
        resolution: cells per side that RoIAlign makes.
        sampling: RoIAlign's samples per side of a cell; 1 halves the cost of training a small network.
        proposals: boxes that reach the second stage (twice as many in training).
        rpn_samples: anchors of a picture that count in training.
        samples: proposals of a picture that count in training.
        positives: share of these that show objects, at most.
        attributes: learn attributes where the data have them.
        min_score: detections below it are left out.
        nms: overlap above which the less certain of two boxes of a class goes.
        limit: most detections of a picture.
    """

    paper = "Ren et al. 2015, Faster R-CNN; Anderson et al. 2018, Bottom-Up and Top-Down Attention (attributes)"
    capabilities = frozenset({"image", "boxes", "detect"})
    local_files = ("weights",)

    def __init__(
        self,
        data_spec: vl.DataSpec,
        *,
        backbone: str = "resnet50",
        weights: str | None = None,
        norm: Literal["frozen", "batch"] = "frozen",
        short: int = 800,
        long: int = 1333,
        anchors: tuple[int, ...] = (),
        ratios: tuple[float, ...] = (0.5, 1.0, 2.0),
        head: Literal["mlp", "mean"] = "mlp",
        width: int = 1024,
        resolution: int = 7,
        sampling: int = 2,
        proposals: int = 1000,
        rpn_samples: int = 256,
        samples: int = 512,
        positives: float = 0.25,
        attributes: bool = True,
        min_score: float = 0.05,
        nms: float = 0.5,
        limit: int = 100,
    ) -> None:
        super().__init__(data_spec)
        self.width = width
        body, levels, stride = backbone_of(backbone, norm)
        anchors = anchors or (TINY_ANCHORS if levels == 1 else FPN_ANCHORS)
        by_level = (anchors,) if levels == 1 else tuple((side,) for side in anchors)
        if len(by_level) != levels:
            got, expected = f"{len(anchors)} sides", f"{levels}, one for each level of the pyramid"
            raise ComponentError("The anchors do not fit the backbone.", got=got, expected=expected)
        generator = AnchorGenerator(by_level, (ratios,) * levels)
        rpn_head = RPNHead(body.out_channels, generator.num_anchors_per_location()[0])
        kept = {"training": 2 * proposals, "testing": proposals}
        rpn = RegionProposalNetwork(generator, rpn_head, 0.7, 0.3, rpn_samples, 0.5, kept, kept, 0.7)
        maps = [str(level) for level in range(max(1, levels - 1))]  # a pyramid's last level is for proposals only
        if levels == 1:
            pooling: MultiScaleRoIAlign = SampledRoIAlign(maps[0], resolution, sampling, stride)
        else:
            pooling = MultiScaleRoIAlign(maps, resolution, sampling)
        cells, channels = resolution**2, body.out_channels
        box_head = MeanHead(channels, cells, width) if head == "mean" else TwoMLPHead(channels * cells, width)
        parts = pooling, box_head, Predictor(width, data_spec.region_classes + 1)
        options = (*parts, 0.5, 0.5, samples, positives, None, min_score, nms, limit)
        count = data_spec.region_attributes if attributes else 0
        heads = AttributeHeads(*options, width=width, attributes=count) if count else RoIHeads(*options)
        resize = (short, long or 1_000_000) if short else (1, 1)
        kind = GeneralizedRCNNTransform if short else SameSize
        transform = kind(*resize, list(vl.IMAGENET_MEAN), list(vl.IMAGENET_STD), size_divisible=stride)
        self.network = GeneralizedRCNN(body, rpn, heads, transform)
        if weights is not None:
            vl.load_tensors(self.network.backbone.body, vl.read_weights(weights), weights, ("fc.*",))

    @property
    def dim(self) -> int:
        return self.width

    def input_spec(self) -> vl.InputSpec:
        return vl.InputSpec(pixels=True, boxes=True, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))

    def detect(self, images: vl.Images) -> vl.DetectionOutput:
        pictures = pictures_of(images)
        rows = self.network(pictures)
        pairs = zip(rows, pictures, strict=True)
        boxes = [scaled(row["boxes"], (picture.shape[1], picture.shape[2]), (1, 1)) for row, picture in pairs]
        return vl.DetectionOutput.ragged(boxes, [row["labels"] - 1 for row in rows], [row["scores"] for row in rows])

    def detection_losses(self, images: vl.Images) -> dict[str, tuple[Tensor, Tensor]]:
        pixels, pictures, network = _pixels(images), pictures_of(images), self.network
        with ExitStack() as modes:  # torchvision computes losses in training mode only
            for part in (network, network.transform, network.rpn, network.roi_heads, network.roi_heads.box_predictor):
                modes.callback(setattr, part, "training", part.training)
                part.training = True
            losses = network(pictures, targets_of(pixels, pictures))
        count = torch.tensor(float(len(pictures)), device=pixels.images.device)
        return {LOSSES[name]: (value * count, count) for name, value in losses.items()}

    def encode_image(self, images: vl.Images, record: vl.Recorder | None = None) -> vl.EncoderOutput:
        pixels, pictures = _pixels(images), pictures_of(images)
        if pixels.boxes is None or pixels.box_mask is None:
            raise DataError("The pictures come without boxes.", where="model faster-rcnn")
        seen = look(self.network, pictures)
        parts = zip(pixels.boxes, pixels.box_mask, seen.sizes, strict=True)
        boxes = [scaled(rows[real], (1, 1), size) for rows, real, size in parts]
        rows = box_features(self.network, seen, boxes)  # (sum N, D)
        hidden = rows.new_zeros(*pixels.box_mask.shape, rows.shape[-1])
        hidden[pixels.box_mask] = rows
        return vl.EncoderOutput(hidden, vl.Layout.for_boxes(pixels.boxes, pixels.box_mask))

    def attribute_scores(self, rows: Tensor) -> Tensor | None:
        """Return probabilities (N, A) of attributes by box features; None without attributes."""
        heads = self.network.roi_heads
        return heads.attribute_predictor(rows).softmax(-1) if isinstance(heads, AttributeHeads) else None

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        if not any(name.startswith("network.") for name in state):
            state = {f"network.{name}": value for name, value in modern_names(state).items()}
        fresh = self.state_dict()
        kept = {n: v for n, v in state.items() if "_predictor." not in n or (n in fresh and fresh[n].shape == v.shape)}
        if len(kept) < len(state):
            report.append("the predictors are of other classes and start anew")
            kept |= {name: value for name, value in fresh.items() if "_predictor." in name and name not in kept}
        return kept


def _pixels(images: vl.Images) -> vl.Pixels:
    if images.pixels is None:
        raise DataError("The detector was given no pictures.", where="model faster-rcnn")
    return images.pixels


def pictures_of(images: vl.Images) -> list[Tensor]:
    """Return the pictures (3, H, W) without the padding to the batch's size."""
    pixels = _pixels(images)
    if pixels.mask is None:
        return list(pixels.images)
    heights, widths = pixels.mask.any(2).sum(1).tolist(), pixels.mask.any(1).sum(1).tolist()
    return [picture[:, :h, :w] for picture, h, w in zip(pixels.images, heights, widths, strict=True)]


def targets_of(pixels: vl.Pixels, pictures: list[Tensor]) -> list[dict[str, Tensor]]:
    """Return torchvision's targets: pixels, labels from 1; boxes without width, height or class are left out."""
    if pixels.boxes is None or pixels.box_mask is None or pixels.classes is None:
        blank = torch.zeros(0, dtype=torch.long, device=pixels.images.device)
        return [{"boxes": pixels.images.new_zeros(0, 4), "labels": blank, "attributes": blank} for _ in pictures]
    attributes = torch.full_like(pixels.classes, -1) if pixels.attributes is None else pixels.attributes
    targets = []
    for row, picture in enumerate(pictures):
        boxes = scaled(pixels.boxes[row], (1, 1), (picture.shape[1], picture.shape[2]))
        solid = (boxes[:, 2:] > boxes[:, :2]).all(1) & pixels.box_mask[row] & (pixels.classes[row] >= 0)
        labels = pixels.classes[row][solid] + 1
        targets.append({"boxes": boxes[solid], "labels": labels, "attributes": attributes[row][solid]})
    return targets
