"""Computes DETR's set loss (Carion et al., ECCV 2020, section 3.1, Eq. 1 and 2, and appendix A.2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.ops import box_convert, generalized_box_iou

from vlcli.objectives import full_precision

Sums = dict[str, tuple[Tensor, Tensor]]
"""By name: a sum over terms, and their number."""


@dataclass(frozen=True)
class SetWeights:
    """Weights of class, L1 box distance and generalised IoU, in matching and loss."""

    label: float = 1.0
    box: float = 5.0
    overlap: float = 2.0
    nothing: float = 0.1  # of a prediction without an object, relative to one with, in the class loss


@dataclass(frozen=True)
class Objects:
    """The N objects of one picture."""

    labels: Tensor  # (N,) rows of the classifier
    boxes: Tensor  # (N, 4) centre x, centre y, width, height as shares of the picture


@torch.no_grad()
def match(
    logits: Tensor, boxes: Tensor, objects: Sequence[Objects], weights: SetWeights = SetWeights()
) -> list[tuple[Tensor, Tensor]]:
    """Returns the cheapest one-to-one matching of predictions and objects (both (min(Q, N),)) of every picture.

    Args:
        logits: (B, Q, C + 1) class scores, "no object" last.
        boxes: (B, Q, 4) centre x, centre y, width, height.
        weights: of the costs: minus the class's probability, L1, minus generalised IoU.
    """
    from scipy.optimize import linear_sum_assignment

    pairs = []
    shares, boxes = full_precision(logits).softmax(-1), full_precision(boxes)
    for scores, guessed, truth in zip(shares, boxes, objects, strict=True):
        true = truth.boxes.to(guessed.dtype)  # (N, 4)
        cost = weights.box * torch.cdist(guessed, true, p=1) - weights.label * scores[:, truth.labels]  # (Q, N)
        cost = cost - weights.overlap * generalized_box_iou(corners(guessed), corners(true))
        # A diverged model has costs that are no numbers: its loss, not the matching, is to tell.
        matched = linear_sum_assignment(cost.nan_to_num(1e6, 1e6, -1e6).cpu())
        rows, columns = (torch.as_tensor(numbers, device=cost.device) for numbers in matched)
        pairs.append((rows, columns))
    return pairs


def set_loss(logits: Tensor, boxes: Tensor, objects: Sequence[Objects], weights: SetWeights = SetWeights()) -> Sums:
    """Returns the loss of L decoder layers, each matched by itself, of scores (L, B, Q, C + 1) and boxes (L, B, Q, 4).

    ``class``, ``box`` and ``overlap`` are weighted sums and their divisors: matched weights, and numbers of objects.
    """
    layers = [_layer_loss(*layer, objects, weights) for layer in zip(logits, boxes, strict=True)]
    # Every layer divides by the same numbers: the objects, and as many matched predictions.
    return {
        name: (torch.stack([layer[name][0] for layer in layers]).sum() * weight, layers[-1][name][1])
        for name, weight in (("class", weights.label), ("box", weights.box), ("overlap", weights.overlap))
    }


def _layer_loss(logits: Tensor, boxes: Tensor, objects: Sequence[Objects], weights: SetWeights) -> Sums:
    pairs = match(logits, boxes, objects, weights)
    logits, boxes = full_precision(logits), full_precision(boxes)  # (B, Q, C + 1), (B, Q, 4)
    labels = logits.new_full(logits.shape[:2], logits.shape[-1] - 1, dtype=torch.long)  # (B, Q)
    for picture, ((rows, columns), truth) in enumerate(zip(pairs, objects, strict=True)):
        labels[picture, rows] = truth.labels[columns]
    class_weights = logits.new_ones(logits.shape[-1])  # (C + 1,)
    class_weights[-1] = weights.nothing
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), class_weights, reduction="sum")
    matched = torch.cat([one[rows] for one, (rows, _) in zip(boxes, pairs, strict=True)])  # (M, 4)
    true = torch.cat([one.boxes[columns] for one, (_, columns) in zip(objects, pairs, strict=True)]).to(boxes.dtype)
    count = torch.tensor(float(sum(len(one.labels) for one in objects)), device=logits.device)
    apart = 1 - _paired_overlap(corners(matched), corners(true))  # (M,)
    return {
        "class": (total, class_weights[labels].sum()),
        "box": ((matched - true).abs().sum(), count),
        "overlap": (apart.sum(), count),
    }


def corners(boxes: Tensor) -> Tensor:
    """Converts boxes (..., 4) from centre, width and height to x1, y1, x2, y2."""
    return cast("Tensor", box_convert(boxes, "cxcywh", "xyxy"))


def _paired_overlap(one: Tensor, other: Tensor) -> Tensor:
    # Generalised IoU of boxes (M, 4) with their partners, not of all pairs.
    low, high = torch.maximum(one[:, :2], other[:, :2]), torch.minimum(one[:, 2:], other[:, 2:])  # (M, 2)
    shared = (high - low).clamp(min=0).prod(1)  # (M,)
    union = (one[:, 2:] - one[:, :2]).prod(1) + (other[:, 2:] - other[:, :2]).prod(1) - shared
    hull = (torch.maximum(one[:, 2:], other[:, 2:]) - torch.minimum(one[:, :2], other[:, :2])).prod(1)
    tiny = 1e-9  # boxes without area
    return shared / union.clamp(min=tiny) - (hull - union) / hull.clamp(min=tiny)
