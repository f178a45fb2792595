"""DETR's set loss: predictions and objects matched one to one; then class, box and overlap.

Carion et al., ECCV 2020, section 3.1, Eq. 1 and 2, and appendix A.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.ops import box_convert, generalized_box_iou

from vlcli.errors import ComponentError
from vlcli.objectives import full_precision

Sums = dict[str, tuple[Tensor, Tensor]]
"""By name: a sum over terms, and their number."""


@dataclass(frozen=True)
class SetWeights:
    """What counts how much.

    Attributes:
        label: class, in matching and loss.
        box: L1 distance of boxes.
        overlap: generalised IoU.
        nothing: a prediction that belongs to no object, relative to one that does.
    """

    label: float = 1.0
    box: float = 5.0
    overlap: float = 2.0
    nothing: float = 0.1


@dataclass(frozen=True)
class Objects:
    """The objects of one picture.

    Attributes:
        labels: (N,) rows of the classifier.
        boxes: (N, 4) centre x, centre y, width, height as shares of the picture.
    """

    labels: Tensor
    boxes: Tensor


@torch.no_grad()
def match(
    logits: Tensor, boxes: Tensor, objects: Sequence[Objects], weights: SetWeights = SetWeights()
) -> list[tuple[Tensor, Tensor]]:
    """The cheapest one-to-one matching of predictions and objects, picture by picture.

    Args:
        logits: (B, Q, C + 1) class scores, "no object" last.
        boxes: (B, Q, 4) centre x, centre y, width, height.
        objects: of the B pictures.
        weights: of the costs: minus the class's probability, L1, minus generalised IoU.

    Returns:
        Predictions and objects (both (min(Q, N),)) of every picture, in the order of predictions.
    """
    chances, places = full_precision(logits).softmax(-1), full_precision(boxes)
    found = []
    for chance, place, own in zip(chances, places, objects, strict=True):
        true = own.boxes.to(place.dtype)
        cost = weights.box * torch.cdist(place, true, p=1) - weights.label * chance[:, own.labels]
        cost = cost - weights.overlap * generalized_box_iou(corners(place), corners(true))
        found.append(_assigned(cost))
    return found


def _assigned(cost: Tensor) -> tuple[Tensor, Tensor]:
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        what, hint = "Training DETR needs scipy, which matches predictions with objects.", "pip install 'vlcli[coco]'"
        raise ComponentError(what, where="model detr", hint=hint) from error
    # A diverged model has costs that are no numbers: its loss, not the matching, is to tell.
    rows, columns = linear_sum_assignment(cost.nan_to_num(1e6, 1e6, -1e6).cpu())
    made: tuple[Tensor, Tensor] = (
        torch.as_tensor(rows, device=cost.device),
        torch.as_tensor(columns, device=cost.device),
    )
    return made


def set_loss(logits: Tensor, boxes: Tensor, objects: Sequence[Objects], weights: SetWeights = SetWeights()) -> Sums:
    """The loss of several decoder layers, each matched by itself: their sums, weighted, over the last one's numbers.

    Args:
        logits: (L, B, Q, C + 1).
        boxes: (L, B, Q, 4).
        objects: of the B pictures.
        weights: of the parts.

    Returns:
        ``class``, ``box`` and ``overlap`` as weighted sums and what they are divided by: matched weights, and objects.
    """
    layers = [layer_loss(*layer, objects, weights) for layer in zip(logits, boxes, strict=True)]
    # Every layer divides by the same numbers: the objects, and as many matched predictions.
    return {
        name: (torch.stack([layer[name][0] for layer in layers]).sum() * weight, layers[-1][name][1])
        for name, weight in (("class", weights.label), ("box", weights.box), ("overlap", weights.overlap))
    }


def layer_loss(logits: Tensor, boxes: Tensor, objects: Sequence[Objects], weights: SetWeights = SetWeights()) -> Sums:
    """Class, L1 and generalised-IoU loss of one layer, not weighted against one another: sums and numbers."""
    pairs = match(logits, boxes, objects, weights)
    logits, boxes = full_precision(logits), full_precision(boxes)
    wanted = logits.new_full(logits.shape[:2], logits.shape[-1] - 1, dtype=torch.long)
    for picture, ((rows, columns), own) in enumerate(zip(pairs, objects, strict=True)):
        wanted[picture, rows] = own.labels[columns]
    each = logits.new_ones(logits.shape[-1])
    each[-1] = weights.nothing
    total = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), each, reduction="sum")
    found = torch.cat([place[rows] for place, (rows, _) in zip(boxes, pairs, strict=True)])  # (M, 4)
    true = torch.cat([own.boxes[columns] for own, (_, columns) in zip(objects, pairs, strict=True)]).to(boxes.dtype)
    count = torch.tensor(float(sum(len(own.labels) for own in objects)), device=logits.device)
    apart = 1 - _paired_overlap(corners(found), corners(true))
    return {
        "class": (total, each[wanted].sum()),
        "box": ((found - true).abs().sum(), count),
        "overlap": (apart.sum(), count),
    }


def corners(boxes: Tensor) -> Tensor:
    """Centre, width and height as x1, y1, x2, y2."""
    made: Tensor = box_convert(boxes, "cxcywh", "xyxy")
    return made


def _paired_overlap(one: Tensor, other: Tensor) -> Tensor:
    low, high = torch.maximum(one[:, :2], other[:, :2]), torch.minimum(one[:, 2:], other[:, 2:])
    shared = (high - low).clamp(min=0).prod(1)
    union = (one[:, 2:] - one[:, :2]).prod(1) + (other[:, 2:] - other[:, :2]).prod(1) - shared
    hull = (torch.maximum(one[:, 2:], other[:, 2:]) - torch.minimum(one[:, :2], other[:, :2])).prod(1)
    tiny = 1e-9  # boxes without area
    return shared / union.clamp(min=tiny) - (hull - union) / hull.clamp(min=tiny)
