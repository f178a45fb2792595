"""Which of a detector's detections become the regions of an image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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


def select(
    found: Found,
    confidence: float,
    least: int,
    most: int,
    cells: Tensor | None,
    size: tuple[int, int],
    *,
    weaker: bool,
) -> Found:
    """At most ``most`` boxes of a score of ``confidence`` or more, best first; fewer than ``least`` are filled up.

    Args:
        found: after the detector's own suppression; boxes without a class are passed over.
        confidence: least score.
        least: fewest boxes.
        most: most detections.
        cells: of a grid (K, 4), added where there are fewer than ``least``; or None.
        size: height and width of the picture, the region of last resort.
        weaker: fill up with the best of the others.
    """
    found = found.rows((found.labels >= 0).nonzero()[:, 0])
    found = found.rows(found.scores.argsort(descending=True, stable=True))
    strong = int((found.scores >= confidence).sum())
    kept = found.rows(torch.arange(min(max(strong, least if weaker else 0), most, len(found.scores))))
    if strong < least and cells is not None:
        kept = _with(kept, cells)
    if not len(kept.scores):
        height, width = size
        kept = _with(kept, kept.boxes.new_tensor([[0.0, 0.0, width, height]]))
    return kept


def _with(found: Found, boxes: Tensor) -> Found:
    """More boxes, of no class."""
    labels, scores = found.labels.new_full((len(boxes),), -1), found.scores.new_zeros(len(boxes))
    parts = (found.boxes, boxes.to(found.boxes)), (found.labels, labels), (found.scores, scores)
    return Found(*(torch.cat(pair) for pair in parts))
