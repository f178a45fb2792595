"""Which of a detector's proposals become an image's regions: the rules behind the published features.

The field's files were made by three programs that choose differently; a model pre-trained on one loses accuracy on
another's choice (huggingface/transformers#8769), so each is kept exactly:

- ``caffe``: Anderson et al. 2018 and its PyTorch port by MILVLG; LXMERT's files.
- ``airsplay``: LXMERT's later detectron2 script.
- ``vlp``: VLP and DiMBERT (Zhou et al. 2020).
- ``detectron2``: a detector's ordinary output, which airsplay's notebooks and MILVLG's detectron2 mode use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torchvision.ops import batched_nms
from torchvision.ops import nms as torchvision_nms

from vlcli.detection.detections import Detections, Selection

RuleName = Literal["caffe", "airsplay", "vlp", "detectron2"]
"""The names of the rules that select regions from detections."""
FLOORS = (0.05, 0.01, 1e-3, 1e-5, 0.0)


@dataclass(frozen=True)
class Rule:
    """A rule of selection with its settings.

    Attributes:
        name: which rule.
        least: fewest boxes of an image.
        most: most boxes of an image.
        nms: overlap above which the weaker box goes; a start for the rules that raise it.
        confidence: a box below it stays only to make up ``least``.
    """

    name: RuleName
    least: int
    most: int
    nms: float
    confidence: float

    def __call__(self, found: Detections) -> Selection:
        return {"caffe": _caffe, "airsplay": _airsplay, "vlp": _vlp, "detectron2": _detectron2}[self.name](found, self)


# Non-maximum suppression and confidence of each rule where nothing else is said
DEFAULTS: dict[RuleName, tuple[float, float]] = {
    "caffe": (0.3, 0.2),
    "airsplay": (0.3, 0.2),
    "vlp": (0.5, 0.2),
    "detectron2": (0.5, 0.05),
}


def make_rule(name: RuleName, least: int, most: int, nms: float | None = None, confidence: float | None = None) -> Rule:
    """A rule with its own settings where none are given."""
    own_nms, own_confidence = DEFAULTS[name]
    return Rule(
        name, least, most, own_nms if nms is None else nms, own_confidence if confidence is None else confidence
    )


def nms(boxes: Tensor, scores: Tensor, threshold: float, legacy: bool = False) -> Tensor:
    """Greedy non-maximum suppression; rows kept, best first.

    Args:
        boxes: (N, 4).
        scores: (N,).
        threshold: overlap (intersection over union) above which the weaker box goes.
        legacy: as the Caffe, Detectron and maskrcnn-benchmark code on a CPU: the far corner is the last pixel, and an
            overlap equal to the threshold is enough.
    """
    if legacy:
        boxes = boxes + boxes.new_tensor([0, 0, 1, 1])
        threshold = float(np.nextafter(np.float32(threshold), np.float32(0)))  # over it: from the threshold on
    out: Tensor = torchvision_nms(boxes, scores, threshold)
    return out


def best_surviving(probs: Tensor, boxes: Tensor, threshold: float, floor: float = 0.0) -> tuple[Tensor, Tensor]:
    """Every proposal's best score among the classes whose own suppression it survives, and that class.

    Args:
        probs: (N, C).
        boxes: shared by the classes (N, 4), or each class's own (N, C, 4).
        threshold: of the suppression.
        floor: scores below it are left out. A weaker box never removes a stronger one, so results from ``floor`` on
            are those of the whole table.

    Returns:
        Scores (N,), 0 where a proposal survives nowhere, and classes (N,).
    """
    alive = torch.zeros_like(probs)
    columns, rows = (probs >= floor).T.nonzero(as_tuple=True)  # class after class
    classes, counts = columns.unique_consecutive(return_counts=True)
    for column, members in zip(classes.tolist(), rows.split(counts.tolist()), strict=True):
        candidates = boxes[members] if boxes.ndim == 2 else boxes[members, column]
        kept = members[nms(candidates, probs[members, column], threshold, legacy=True)]
        alive[kept, column] = probs[kept, column]
    best = alive.argmax(1) if len(probs) else torch.zeros(0, dtype=torch.int64, device=probs.device)
    return alive.gather(1, best[:, None])[:, 0], best


def _ranked(found: Detections, boxes: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    scores, classes = found.probs[:, 0], torch.zeros(0)
    for floor in (rule.confidence, *(floor for floor in FLOORS if floor < rule.confidence)):
        scores, classes = best_surviving(found.probs, boxes, rule.nms, floor)
        if int((scores >= max(floor, 1e-30)).sum()) >= min(rule.least, len(found)):
            break
    return scores, classes


def _keep(scores: Tensor, passed: Tensor, rule: Rule) -> Tensor:
    # Rows that passed, in their order; the best ``least`` where those are too few, ``most`` where too many
    count = int(passed.sum())
    if rule.least <= count <= rule.most:
        return passed.nonzero()[:, 0]
    best = scores.argsort(descending=True, stable=True)
    return best[: rule.least if count < rule.least else rule.most]


def _caffe(found: Detections, rule: Rule) -> Selection:
    scores, _ = _ranked(found, found.boxes, rule)
    rows = _keep(scores, scores >= rule.confidence, rule)
    best, classes = found.probs[rows].max(1)
    return Selection(rows, found.boxes[rows], scores[rows], classes, best)


def _vlp(found: Detections, rule: Rule) -> Selection:
    boxes = _regressed(found)
    scores, classes = _ranked(found, boxes, rule)
    rows = _keep(scores, scores > rule.confidence, rule)
    return Selection(rows, boxes[rows, classes[rows]], scores[rows], classes[rows], scores[rows])


def _airsplay(found: Detections, rule: Rule) -> Selection:
    best, classes = found.probs.max(1)
    boxes = _regressed(found)[torch.arange(len(found), device=classes.device), classes]
    rows = classes[:0]
    for threshold in _loosened(rule.nms):
        rows = nms(boxes, best, threshold)[: rule.most]
        if len(rows) >= rule.least:
            break
    return Selection(rows, boxes[rows], best[rows], classes[rows], best[rows])


def _detectron2(found: Detections, rule: Rule) -> Selection:
    rows, classes = (found.probs > rule.confidence).nonzero(as_tuple=True)
    boxes, scores = _regressed(found)[rows, classes], found.probs[rows, classes]
    kept = rows[:0]
    for threshold in _loosened(rule.nms):
        kept = batched_nms(boxes, scores, classes, threshold)[: rule.most]
        if len(kept) >= rule.least:
            break
    return Selection(rows[kept], boxes[kept], scores[kept], classes[kept], scores[kept])


def _loosened(start: float) -> Iterator[float]:
    yield from np.arange(start, 1.0, 0.1).tolist()


def _regressed(found: Detections) -> Tensor:
    if found.regress is None:
        raise ValueError("these detections have no box regression")
    return found.regress()
