"""Selects the regions of an image: a detector's proposals by the published rules, or cells of a feature map.

The field's files were made by three programs that choose differently; a model pre-trained on one loses accuracy on
another's choice (huggingface/transformers#8769), so each is kept exactly:

- ``caffe``: Anderson et al. 2018 and its PyTorch port by MILVLG; LXMERT's files.
- ``airsplay``: LXMERT's later detectron2 script.
- ``vlp``: VLP and DiMBERT (Zhou et al. 2020).
- ``detectron2``: a detector's ordinary output, which airsplay's notebooks and MILVLG's detectron2 mode use.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.ops import batched_nms
from torchvision.ops import nms as torchvision_nms

from vlcli.detection.detections import Detections, Selection
from vlcli.detection.extractor import Prepared
from vlcli.errors import UsageError
from vlcli.features.schema import Record


@dataclass(frozen=True)
class MapGeometry:
    """Position of a map's cells in the input of a network."""

    stride: tuple[float, float]  # height and width of a cell in pixels of the input
    scale: tuple[float, float]  # (x, y) factors from pixels of the original picture to pixels of the resized one
    # (x, y) of the input's first pixel in the resized picture: above 0 where its borders were cropped, below 0 where
    # they were padded
    offset: tuple[float, float] = (0.0, 0.0)


def cell_boxes(
    size: tuple[int, int], cells: tuple[int, int], geometry: MapGeometry
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the boxes of a map's cells, row by row, and which of them show any of the picture.

    Args:
        size: height and width of the original picture in pixels.
        cells: rows and columns of the map.

    Returns:
        x1 y1 x2 y2 in pixels of the original picture, cut at its borders (rows * columns, 4); False for cells that lie
        in padding alone (rows * columns,).
    """
    (height, width), (down, across) = size, geometry.stride
    y = ((np.arange(cells[0] + 1) * down + geometry.offset[1]) / geometry.scale[1]).clip(0, height)
    x = ((np.arange(cells[1] + 1) * across + geometry.offset[0]) / geometry.scale[0]).clip(0, width)
    top, left = np.meshgrid(y[:-1], x[:-1], indexing="ij")
    bottom, right = np.meshgrid(y[1:], x[1:], indexing="ij")
    boxes = np.stack([left, top, right, bottom], -1).reshape(-1, 4).astype(np.float32)
    return boxes, (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])


def cell_record(item: Prepared, rows: Tensor, geometry: MapGeometry) -> Record:
    """Return a picture's record whose regions are the cells of ``rows`` (h, w, D), those of padding alone left out."""
    boxes, seen = cell_boxes(item.size, (rows.shape[0], rows.shape[1]), geometry)
    features: NDArray[np.float32] = rows.flatten(0, 1).float().cpu().numpy()
    return Record(id=item.id, features=features[seen], boxes=boxes[seen], size=item.size)


RuleName = Literal["caffe", "airsplay", "vlp", "detectron2"]
"""The names of the rules that select regions from detections."""
FLOORS = (0.05, 0.01, 1e-3, 1e-5, 0.0)


@dataclass(frozen=True)
class Rule:
    """A rule of selection with its settings."""

    name: RuleName  # which rule
    least: int  # fewest boxes of an image
    most: int  # most boxes of an image
    nms: float  # overlap above which the weaker box goes; a start for the rules that raise it
    confidence: float  # a box below it stays only to make up ``least``

    def __call__(self, proposals: Detections) -> Selection:
        return {"caffe": _caffe, "vlp": _vlp}.get(self.name, _loosened)(proposals, self)


# Non-maximum suppression and confidence of each rule where nothing else is said
DEFAULTS: dict[RuleName, tuple[float, float]] = {
    "caffe": (0.3, 0.2),
    "airsplay": (0.3, 0.2),
    "vlp": (0.5, 0.2),
    "detectron2": (0.5, 0.05),
}


def make_rule(name: RuleName, least: int, most: int, nms: float | None = None, confidence: float | None = None) -> Rule:
    """Return a rule with its defaults where ``nms`` or ``confidence`` is None. UsageError: not 0 <= least <= most."""
    if not 0 <= least <= most or most < 1:
        got, expected = f"min_boxes {least}, max_boxes {most}", "0 <= min_boxes <= max_boxes"
        raise UsageError("min_boxes and max_boxes disagree", got=got, expected=expected)
    usual = DEFAULTS[name]
    return Rule(name, least, most, usual[0] if nms is None else nms, usual[1] if confidence is None else confidence)


def nms(boxes: Tensor, scores: Tensor, threshold: float, legacy: bool = False) -> Tensor:
    """Return the rows that greedy non-maximum suppression keeps of boxes (N, 4) with scores (N,), best first.

    Args:
        threshold: overlap (intersection over union) above which the weaker box goes.
        legacy: as the Caffe, Detectron and maskrcnn-benchmark code on a CPU: the far corner is the last pixel, and an
            overlap equal to the threshold is enough.
    """
    if legacy:
        boxes = boxes + boxes.new_tensor([0, 0, 1, 1])
        threshold = float(np.nextafter(np.float32(threshold), np.float32(0)))  # over it: from the threshold on
    return cast(Tensor, torchvision_nms(boxes, scores, threshold))


def best_surviving(probs: Tensor, boxes: Tensor, threshold: float, floor: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return every proposal's best score (N,) of the classes whose suppression it survives, and that class (N,).

    Args:
        probs: (N, C).
        boxes: shared by the classes (N, 4), or of each class (N, C, 4).
        floor: scores below it are left out. A weaker box never removes a stronger one, so results from ``floor`` on are
            those of the whole table.

    Returns:
        Scores, 0 where a proposal survives nowhere, and classes.
    """
    alive = torch.zeros_like(probs)
    columns, rows = (probs >= floor).T.nonzero(as_tuple=True)  # class after class
    classes, counts = columns.unique_consecutive(return_counts=True)
    for column, members in zip(classes.tolist(), rows.split(counts.tolist()), strict=True):
        candidates = boxes[members] if boxes.ndim == 2 else boxes[members, column]
        kept = members[nms(candidates, probs[members, column], threshold, legacy=True)]
        alive[kept, column] = probs[kept, column]
    return alive.max(1)


def _ranked(proposals: Detections, boxes: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    # :func:`best_surviving` with the highest floor that leaves the outcome as it is
    for floor in (rule.confidence, *(floor for floor in FLOORS if floor < rule.confidence)):
        scores, classes = best_surviving(proposals.probs, boxes, rule.nms, floor)
        if int((scores >= max(floor, 1e-30)).sum()) >= min(rule.least, len(proposals)):
            break
    return scores, classes


def _keep(scores: Tensor, passed: Tensor, rule: Rule) -> Tensor:
    # rows that passed, in their order; the best ``least`` where those are too few, ``most`` where too many
    count = int(passed.sum())
    if rule.least <= count <= rule.most:
        return passed.nonzero()[:, 0]
    return scores.argsort(descending=True, stable=True)[: rule.least if count < rule.least else rule.most]


def _caffe(proposals: Detections, rule: Rule) -> Selection:
    # suppression inside every class on the unregressed proposals; the label is the most likely class
    scores, _ = _ranked(proposals, proposals.boxes, rule)
    rows = _keep(scores, scores >= rule.confidence, rule)
    best, classes = proposals.probs[rows].max(1)
    return Selection(rows, proposals.boxes[rows], scores[rows], classes, best)


def _vlp(proposals: Detections, rule: Rule) -> Selection:
    # suppression inside every class on that class's regressed boxes; box and label of the best surviving class
    boxes = _regressed(proposals)
    scores, classes = _ranked(proposals, boxes, rule)
    rows = _keep(scores, scores > rule.confidence, rule)
    return Selection(rows, boxes[rows, classes[rows]], scores[rows], classes[rows], scores[rows])


def _loosened(proposals: Detections, rule: Rule) -> Selection:
    # airsplay: suppression across classes on the most likely class's regressed box. detectron2: suppression inside
    # every class of all boxes above the confidence; one proposal may stay under several classes. Both are loosened by
    # tenths until enough remain.
    if rule.name == "airsplay":
        scores, classes = proposals.probs.max(1)
        rows = torch.arange(len(proposals), device=classes.device)
    else:
        rows, classes = (proposals.probs > rule.confidence).nonzero(as_tuple=True)
        scores = proposals.probs[rows, classes]
    boxes = _regressed(proposals)[rows, classes]
    suppress = partial(nms, boxes, scores) if rule.name == "airsplay" else partial(batched_nms, boxes, scores, classes)
    kept = rows[:0]
    for threshold in np.arange(rule.nms, 1.0, 0.1).tolist():
        kept = suppress(threshold)[: rule.most]
        if len(kept) >= rule.least:
            break
    return Selection(rows[kept], boxes[kept], scores[kept], classes[kept], scores[kept])


def _regressed(proposals: Detections) -> Tensor:
    if proposals.regress is None:
        raise ValueError("these detections have no box regression")
    return proposals.regress()
