"""Anchors and the region proposal network (Ren et al. 2015), in Caffe's, Detectron's and detectron2's conventions."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torchvision.ops import batched_nms

from vlcli.detection import apply_deltas, clip_boxes, nms
from vlcli_bottom_up.families import Architecture, Family

ASPECTS = (0.5, 1.0, 2.0)
UNIT = (1.0, 1.0, 1.0, 1.0)


def legacy_cells(base: int, scales: Sequence[float]) -> Tensor:
    """Return anchors of one cell as py-faster-rcnn makes them: sides rounded at the base, ratio by ratio (R * S, 4).

    >>> legacy_cells(16, (8.0,))[0].tolist()
    [-84.0, -40.0, 99.0, 55.0]
    """
    width = np.round(np.sqrt(base * base / np.array(ASPECTS)))
    sides = np.stack([width, np.round(width * ASPECTS)], -1)[:, None] * np.array(scales)[:, None]  # (R, S, 2)
    half, middle = (sides.reshape(-1, 2) - 1) / 2, (base - 1) / 2
    return torch.tensor(np.concatenate([middle - half, middle + half], 1), dtype=torch.float32)


def centred_cells(sizes: Sequence[float]) -> Tensor:
    """Return anchors of one cell as detectron2 makes them: centred on its corner, size by size (S * R, 4)."""
    width = np.sqrt(np.array(sizes)[:, None] ** 2 / ASPECTS)  # (S, R)
    half = np.stack([width, ASPECTS * width], -1).reshape(-1, 2) / 2
    return torch.tensor(np.concatenate([-half, half], 1), dtype=torch.float32)


def cells_of(family: Family, sizes: Architecture) -> list[Tensor]:
    """Return anchors of one cell, for each map."""
    if not sizes.pyramid:
        chosen = family.sizes[: sizes.anchors // len(ASPECTS)]
        return [legacy_cells(16, [size / 16 for size in chosen]) if family.legacy else centred_cells(chosen)]
    if family.legacy:
        return [legacy_cells(4 * 2**level, [size / (4 * 2**level)]) for level, size in enumerate(family.sizes)]
    return [centred_cells([size]) for size in family.sizes]


class Anchors(nn.Module):
    """Anchors of every map; checkpoints that carry anchors replace these."""

    def __init__(self, cells: Sequence[Tensor], strides: Sequence[int]) -> None:
        super().__init__()
        self.cell_anchors, self.strides = nn.Module(), strides
        for index, cell in enumerate(cells):
            self.cell_anchors.register_buffer(str(index), cell)

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        # anchors of each map (h * w * A, 4), row by row of cells
        anchors = []
        for index, (single, stride) in enumerate(zip(maps, self.strides, strict=False)):
            cells: Tensor = self.cell_anchors.get_buffer(str(index))  # (A, 4)
            y, x = torch.meshgrid(*(torch.arange(side) for side in single.shape[-2:]), indexing="ij")
            shifts = torch.stack([x, y, x, y], -1).reshape(-1, 1, 4).to(cells) * stride
            anchors.append((shifts + cells).reshape(-1, 4))
        return anchors


class ProposalHead(nn.Module):
    """Objectness and deltas of every anchor."""

    def __init__(self, channels: int, sizes: Architecture, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, sizes.hidden, 3, padding=1)
        self.objectness_logits = nn.Conv2d(sizes.hidden, sizes.anchors * outputs, 1)
        self.anchor_deltas = nn.Conv2d(sizes.hidden, sizes.anchors * 4, 1)

    def forward(self, single: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.conv(single).relu()
        return self.objectness_logits(hidden), self.anchor_deltas(hidden)  # (B, A * outputs, h, w), (B, A * 4, h, w)


class ProposalNetwork(nn.Module):
    """Proposals of every image, from maps of ``channels`` at ``strides``."""

    def __init__(self, family: Family, sizes: Architecture, channels: int, strides: Sequence[int]) -> None:
        super().__init__()
        self.family = family
        self.extra = int(family.legacy)
        self.rpn_head = ProposalHead(channels, sizes, 2 if family.softmax_objectness else 1)
        self.anchor_generator = Anchors(cells_of(family, sizes), strides)
        self.threshold = 0.7

    def forward(self, maps: Sequence[Tensor], size: tuple[int, int], scales: Sequence[float]) -> list[Tensor]:
        # Proposals of each image, most likely first (N_i, 4), in pixels of the resized image; ``size`` limits them, and
        # scales are resized by original.
        levels = []
        for single, anchors in zip(maps, self.anchor_generator(maps), strict=True):
            logits, deltas = self.rpn_head(single)
            batch, channels, height, width = deltas.shape
            rows = deltas.view(batch, channels // 4, 4, height, width).permute(0, 3, 4, 1, 2).reshape(batch, -1, 4)
            levels.append((self._scores(logits), rows, anchors))
        proposals = []
        for image, scale in enumerate(scales):
            parts = [self._candidates(s[image], d[image], anchors, size, scale) for s, d, anchors in levels]
            numbers = [torch.full_like(s, level, dtype=torch.int64) for level, (_, s) in enumerate(parts)]
            boxes, scores = (torch.cat(column) for column in zip(*parts, strict=True))
            proposals.append(self._suppress(boxes, scores, torch.cat(numbers)))
        return proposals

    def _scores(self, logits: Tensor) -> Tensor:
        # (B, A * outputs, h, w) -> scores of the anchors (B, h * w * A)
        if self.family.softmax_objectness:  # all anchors' backgrounds, then all their objects
            batch, channels, height, width = logits.shape
            logits = logits.view(batch, 2, channels // 2, height, width).softmax(1)[:, 1]
        return logits.permute(0, 2, 3, 1).flatten(1)

    def _candidates(
        self, scores: Tensor, deltas: Tensor, anchors: Tensor, size: tuple[int, int], scale: float
    ) -> tuple[Tensor, Tensor]:
        family = self.family
        if family.filter_first:
            boxes = clip_boxes(apply_deltas(deltas, anchors, UNIT, extra=self.extra), size, self.extra)
            kept = self._large_enough(boxes, size, scale).nonzero()[:, 0]
            order = kept[scores[kept].argsort(descending=True, stable=True)[: family.before]]
            return boxes[order], scores[order]
        order = scores.argsort(descending=True, stable=True)[: family.before]
        boxes = apply_deltas(deltas[order], anchors[order], UNIT, extra=self.extra, inclusive=family.inclusive)
        boxes = clip_boxes(boxes, size, self.extra)
        kept = self._large_enough(boxes, size, scale)
        return boxes[kept], scores[order][kept]

    def _large_enough(self, boxes: Tensor, size: tuple[int, int], scale: float) -> Tensor:
        sides = boxes[:, 2:] - boxes[:, :2]
        least = self.family.min_size * scale
        if self.family.inclusive:  # Detectron: the centre must lie inside as well
            centre = boxes[:, :2] + (sides + 1) / 2
            return ((sides + 1 >= least) & (centre < centre.new_tensor([size[1], size[0]]))).all(1)
        enough = sides + self.extra > least if self.family.strict_min else sides + self.extra >= least
        return (enough & (sides > 0)).all(1)

    def _suppress(self, boxes: Tensor, scores: Tensor, levels: Tensor) -> Tensor:
        if not self.family.legacy:
            return boxes[batched_nms(boxes, scores, levels, self.threshold)[: self.family.after]]
        of_levels = [(levels == level).nonzero()[:, 0] for level in range(len(self.anchor_generator.strides))]
        kept = torch.cat([rows[nms(boxes[rows], scores[rows], self.threshold, legacy=True)] for rows in of_levels])
        return boxes[kept[scores[kept].argsort(descending=True, stable=True)[: self.family.after]]]
