"""Which of a detector's detections become the regions of an image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.ops import nms


@dataclass
class Found:
    """Boxes of one image.

    Attributes:
        boxes: (N, 4) in pixels of the picture.
        labels: (N,) classes from 0; -1 for a cell of a grid or the whole picture.
        scores: (N,) confidence; 0 for those.
    """

    boxes: Tensor
    labels: Tensor
    scores: Tensor

    def rows(self, index: Tensor) -> Found:
        """Those at ``index``."""
        return Found(self.boxes[index], self.labels[index], self.scores[index])


@dataclass(frozen=True)
class Choice:
    """How regions are chosen.

    Attributes:
        confidence: least score.
        least: fewest boxes.
        most: most detections.
        apart: overlap above which the less certain of two boxes goes whatever their classes; 1 for no such rule.
        weaker: fill up with the best of the others where there are fewer than ``least``.
        whole: the whole picture is one more region, after the others.
    """

    confidence: float
    least: int
    most: int
    apart: float = 1.0
    weaker: bool = True
    whole: bool = False


def select(found: Found, choice: Choice, cells: Tensor | None, size: tuple[int, int]) -> Found:
    """The regions of an image: its best detections, best first, and what fills them up.

    Args:
        found: after the detector's own suppression; boxes without a class are passed over.
        choice: the rule.
        cells: of a grid (K, 4), added where there are fewer than ``least``; or None.
        size: height and width of the picture, the region of last resort.
    """
    found = found.rows((found.labels >= 0).nonzero()[:, 0])
    found = found.rows(found.scores.argsort(descending=True, stable=True))
    if choice.apart < 1:
        found = found.rows(nms(found.boxes.float(), found.scores.float(), choice.apart))
    strong = int((found.scores >= choice.confidence).sum())
    wanted = max(strong, choice.least) if choice.weaker else strong
    kept = found.rows(torch.arange(min(wanted, choice.most, len(found.scores))))
    if strong < choice.least and cells is not None:
        kept = _with(kept, cells)
    if choice.whole or not len(kept.scores):
        height, width = size
        kept = _with(kept, kept.boxes.new_tensor([[0.0, 0.0, width, height]]))
    return kept


def _with(found: Found, boxes: Tensor) -> Found:
    labels, scores = found.labels.new_full((len(boxes),), -1), found.scores.new_zeros(len(boxes))
    parts = (found.boxes, boxes.to(found.boxes)), (found.labels, labels), (found.scores, scores)
    return Found(*(torch.cat(pair) for pair in parts))
