"""Outputs of a two-stage detector for one image, in one convention for every detector, and their record.

Detectors differ in the place of the background, the widths of boxes and their heads; extractors make
:class:`Detections` of all, so that the rules of :mod:`vlcli.detection.selection` are written once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from vlcli.detection.extractor import Prepared, to_record
from vlcli.features.schema import Record

ClassProbs = Literal["none", "classes", "all"]
"""Which class probabilities a store keeps: none, the C classes, or those and the background."""


@dataclass
class Detections:
    """One image's proposals with the outputs of the detector's heads."""

    boxes: Tensor  # proposals in pixels of the original image (N, 4)
    features: Tensor  # one row per proposal (N, D)
    probs: Tensor  # probabilities of the classes, background left out (N, C); they sum to 1 with ``background``
    background: Tensor  # probability of no class (N,)
    # gives every class's refined box in pixels of the original image (N, C, 4); None for given boxes
    regress: Callable[[], Tensor] | None = None
    # probabilities of the attributes, "none" left out (N, A); None without such a head
    attributes: Tensor | None = None
    background_first: bool = False  # whether the detector's own order puts the background before the classes

    def __len__(self) -> int:
        return int(self.boxes.shape[0])


@dataclass
class Selection:
    """The boxes a rule keeps, in its order."""

    rows: Tensor  # proposal of each (K,)
    boxes: Tensor  # pixels of the original image (K, 4)
    scores: Tensor  # that the rule ranks by (K,)
    classes: Tensor  # (K,)
    class_scores: Tensor  # probability of that class (K,)


class AttributeHead(nn.Module):
    """Attributes of a region given its class (Anderson et al. 2018): embed the class, concatenate, one hidden layer.

    Args:
        dim: width of a region's feature.
        classes: rows of the embedding, background included.
        outputs: attributes, "none" included where the head has it.
    """

    def __init__(self, dim: int, classes: int, outputs: int, embedding: int = 256, hidden: int = 512) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, embedding)
        self.hidden = nn.Linear(dim + embedding, hidden)
        self.score = nn.Linear(hidden, outputs)

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        return cast(Tensor, self.score(self.hidden(torch.cat([features, self.embedding(classes)], 1)).relu()))


def apply_deltas(
    deltas: Tensor,
    boxes: Tensor,
    weights: tuple[float, float, float, float],
    *,
    extra: int = 0,
    inclusive: bool = False,
) -> Tensor:
    """Move boxes by what a regressor predicts (Girshick et al. 2014, appendix C).

    Args:
        deltas: dx, dy, dw, dh (N, ..., 4).
        boxes: x1 y1 x2 y2, broadcast against ``deltas`` (N, ..., 4).
        weights: what each delta was multiplied by in training.
        extra: added to widths: 1 where a box's far corner is its last pixel (Caffe, Detectron), 0 where it is its edge.
        inclusive: the moved far corner is a last pixel again (Detectron; the Caffe code leaves this out).
    """
    size = boxes[..., 2:] - boxes[..., :2] + extra
    centre = boxes[..., :2] + 0.5 * size
    scaled = deltas / deltas.new_tensor(weights)
    centre = scaled[..., :2] * size + centre
    size = scaled[..., 2:].clamp(max=MAX_LOG_SCALE).exp() * size
    return torch.cat([centre - 0.5 * size, centre + 0.5 * size - float(inclusive)], -1)


MAX_LOG_SCALE = float(np.log(1000.0 / 16))  # A box grows at most from 16 to 1,000 pixels, in every published detector


def clip_boxes(boxes: Tensor, size: tuple[float, float], extra: int = 0) -> Tensor:
    """Clip boxes to an image of ``size`` (height, width); with ``extra`` 1 the last pixel is the limit."""
    return boxes.clamp(min=0).minimum(boxes.new_tensor([*size[::-1]] * 2) - extra)


def detection_record(
    item: Prepared, detections: Detections, kept: Selection | None, class_probs: ClassProbs, attributes: bool
) -> Record:
    """Return the record of one image; ``kept`` is a rule's selection, None for given boxes, all of which stay."""
    rows = torch.arange(len(detections), device=detections.boxes.device) if kept is None else kept.rows
    fields: dict[str, Tensor] = {}
    if class_probs != "none":
        parts = [detections.probs[rows], *([detections.background[rows, None]] if class_probs == "all" else [])]
        fields["class_probs"] = torch.cat(parts[::-1] if detections.background_first else parts, 1)
    if kept is None:
        fields["class_scores"], fields["classes"] = detections.probs.max(1)
    else:
        fields |= {"scores": kept.scores, "classes": kept.classes, "class_scores": kept.class_scores}
    if attributes and detections.attributes is not None:
        fields["attribute_scores"], fields["attributes"] = detections.attributes[rows].max(1)
    arrays: dict[str, Any] = {name: value.detach().cpu().numpy() for name, value in fields.items()}
    features = detections.features[rows].float().cpu().numpy()
    if kept is None:
        return to_record(item, features, **arrays)
    boxes = clip_boxes(kept.boxes.float().cpu(), item.size).numpy()  # rounding may leave by a hair
    boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2])  # the last pixel of a box thinner than one lies before it
    return Record(id=item.id, features=features, boxes=boxes, size=item.size, **arrays)
