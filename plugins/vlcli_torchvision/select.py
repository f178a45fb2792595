"""Selects the regions of an image among a detector's detections."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.ops import nms


@dataclass
class Regions:
    """Boxes of one image.

    Attributes:
        labels: (N,) classes from 0; -1 for a cell of a grid or the whole picture.
        scores: (N,) confidence; 0 for those.
    """

    boxes: Tensor
    labels: Tensor
    scores: Tensor

    def rows(self, index: Tensor) -> Regions:
        """Return those at ``index``."""
        return Regions(self.boxes[index], self.labels[index], self.scores[index])


@dataclass(frozen=True)
class Choice:
    """Rule by which regions are selected.

    Attributes:
        least: fewest boxes.
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


def select(regions: Regions, choice: Choice, cells: Tensor | None, size: tuple[int, int]) -> Regions:
    """Return the regions of an image: its best detections, best first, and what fills them up.

    Args:
        regions: after the detector's own suppression; boxes without a class are passed over.
        cells: of a grid (K, 4), added where there are fewer than ``least``; or None.
        size: height and width of the picture, the region of last resort.
    """
    regions = regions.rows((regions.labels >= 0).nonzero()[:, 0])
    regions = regions.rows(regions.scores.argsort(descending=True, stable=True))
    if choice.apart < 1:
        regions = regions.rows(nms(regions.boxes.float(), regions.scores.float(), choice.apart))
    strong = int((regions.scores >= choice.confidence).sum())
    wanted = max(strong, choice.least) if choice.weaker else strong
    kept = regions.rows(torch.arange(min(wanted, choice.most, len(regions.scores))))
    if strong < choice.least and cells is not None:
        kept = _with(kept, cells)
    if choice.whole or not len(kept.scores):
        height, width = size
        kept = _with(kept, kept.boxes.new_tensor([[0.0, 0.0, width, height]]))
    return kept


def _with(regions: Regions, boxes: Tensor) -> Regions:
    labels, scores = regions.labels.new_full((len(boxes),), -1), regions.scores.new_zeros(len(boxes))
    parts = (regions.boxes, boxes.to(regions.boxes)), (regions.labels, labels), (regions.scores, scores)
    return Regions(*(torch.cat(pair) for pair in parts))
