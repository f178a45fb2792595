"""Describes each token of a sequence (words, boxes, grid cells): modality, sentence or picture, position."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Self

import torch
from torch import Tensor

from vlcli.nn.batch import Tensors

TEXT, IMAGE, CONCEPT = 0, 1, 2
"""Routes of vlcli's models; a model may have others."""
SPECIAL = 3
"""Route of separators and class tokens, in models that have one for them."""

Runs = tuple[tuple[int, int], ...]
"""Neighbouring tokens of one route, as (route, number of tokens) from the left."""


@dataclass
class Layout(Tensors):
    """Modality, source and place of each token; the leading dimension is B, or 1 for the whole batch.

    Attributes:
        route: (B, T) number of the projections or expert of a token.
        source: (B, T) number of its sentence or image from 0; a visual concept has the route of text and the source of
            its image.
        index: (B, T) 0-based place in its sentence; -1 for other tokens.
        centre: (B, T, 2) row and column on its image, in cells of a grid or in [0, 1] for boxes; NaN for other tokens.
        special: (B, T) bool: class tokens and separators, which have no place.
        valid: (B, T) bool: False at padding.
        grid: rows and columns if the image tokens form one full grid in row-major order.
        boxes: (B, T, 4) boxes in [0, 1]; zeros at other tokens; None: there are no boxes.
        runs: (route, length) of neighbouring tokens of one route, if they are known and the same in every row.
    """

    route: Tensor
    source: Tensor
    index: Tensor
    centre: Tensor
    special: Tensor
    valid: Tensor
    grid: tuple[int, int] | None = None
    boxes: Tensor | None = None
    runs: Runs | None = None

    @classmethod
    def for_text(cls, mask: Tensor, special: Tensor | None = None, *, route: int = TEXT, source: int = 0) -> Self:
        """Lay out one sentence per row: ``mask`` (B, T) bool."""
        index = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
        nowhere = torch.full((*mask.shape, 2), torch.nan, device=mask.device)
        flat = torch.zeros_like(mask, dtype=torch.long)
        special = torch.zeros_like(mask) if special is None else special
        return cls(flat + route, flat + source, index, nowhere, special, mask, runs=((route, mask.shape[1]),))

    @classmethod
    def for_boxes(cls, boxes: Tensor, mask: Tensor, *, route: int = IMAGE, source: int = 0) -> Self:
        """Lay out one set of boxes per row: ``boxes`` (B, R, 4) in [0, 1], ``mask`` (B, R) bool."""
        centre = torch.stack([boxes[..., 1] + boxes[..., 3], boxes[..., 0] + boxes[..., 2]], -1) / 2
        flat = torch.zeros_like(mask, dtype=torch.long)
        off, runs = torch.zeros_like(mask), ((route, mask.shape[1]),)
        return cls(flat + route, flat + source, flat - 1, centre, off, mask, boxes=boxes, runs=runs)

    @classmethod
    def for_grid(
        cls,
        rows: int,
        columns: int,
        *,
        skip: int = 0,
        route: int = IMAGE,
        source: int = 0,
        device: torch.device | str | None = None,
    ) -> Self:
        """Lay out a grid in row-major order behind ``skip`` special tokens (leading dimension 1)."""
        count = skip + rows * columns
        cells = torch.cartesian_prod(torch.arange(float(rows)), torch.arange(float(columns))).reshape(-1, 2)
        centre = torch.cat([torch.full((skip, 2), torch.nan), cells])[None]
        special = (torch.arange(count) < skip)[None]
        flat, real, runs = torch.zeros(1, count, dtype=torch.long), torch.ones_like(special), ((route, count),)
        layout = cls(flat + route, flat + source, flat - 1, centre, special, real, (rows, columns), runs=runs)
        return layout if device is None else layout.to(device)

    def __len__(self) -> int:
        return self.route.shape[1]

    def __add__(self, other: Layout) -> Layout:
        """Concatenate two sequences; a grid is kept if the other one has no tokens on an image."""
        rows = other.route.shape[0] if self.route.shape[0] == 1 else self.route.shape[0]  # len() would fix an export
        left, right = self.expand(rows), other.expand(rows)
        grid = left.grid if left.grid and _off_plane(right) else right.grid if right.grid and _off_plane(left) else None
        names = ("route", "source", "index", "centre", "special", "valid")
        joined = {name: torch.cat([getattr(left, name), getattr(right, name)], 1) for name in names}
        boxes = None
        if left.boxes is not None or right.boxes is not None:
            blanks = (torch.zeros(*side.route.shape, 4, device=side.route.device) for side in (left, right))
            sides = zip((left.boxes, right.boxes), blanks, strict=True)
            boxes = torch.cat([blank if side is None else side for side, blank in sides], 1)
        runs = None if left.runs is None or right.runs is None else merged((*left.runs, *right.runs))
        return Layout(**joined, grid=grid, boxes=boxes, runs=runs)

    def expand(self, rows: int) -> Layout:
        return self if self.route.shape[0] == rows else self.map(lambda each: each.expand(rows, *each.shape[1:]))

    def with_route(self, route: int) -> Layout:
        return replace(self, route=torch.full_like(self.route, route), runs=((route, self.route.shape[1]),))

    def cut(self, start: int, stop: int) -> Layout:
        """Return the tokens from ``start`` to ``stop``, without a grid."""
        runs = None if self.runs is None else cut_runs(self.runs, start, stop)
        return replace(self.map(lambda tensor: tensor[:, start:stop]), grid=None, runs=runs)

    def columns(self, route: int) -> list[tuple[int, int]]:
        """Return (start, stop) of the tokens of a route, which must be the same in all rows."""
        runs = self.runs if self.runs is not None else merged([(kind, 1) for kind in self.route[0].tolist()])
        ends = accumulate(count for _, count in runs)
        return [(end - count, end) for (kind, count), end in zip(runs, ends, strict=True) if kind == route]

    def grouped(self, sets: tuple[int, ...]) -> tuple[list[Tensor], Tensor]:
        """Return indices of the flattened tokens (B * T) by the set of their route, and those that restore the order.

        ``sets`` holds the set of each route; the result is computed once per layout.
        """
        cache: dict[tuple[int, ...], tuple[list[Tensor], Tensor]] = self.__dict__.setdefault("_grouped", {})
        if sets not in cache:
            which = torch.tensor(sets, device=self.route.device)[self.route].flatten()  # (B * T,)
            groups = [(which == number).nonzero()[:, 0] for number in range(max(sets) + 1)]
            cache[sets] = (groups, torch.cat(groups).argsort())
        return cache[sets]


def merged(runs: Iterable[tuple[int, int]]) -> Runs:
    """Join neighbouring runs of one route."""
    return tuple((route, sum(count for _, count in group)) for route, group in groupby(runs, key=itemgetter(0)))


def cut_runs(runs: Runs, start: int, stop: int) -> Runs:
    """Return the runs of the columns from ``start`` to ``stop``."""
    ends = accumulate(count for _, count in runs)
    parts = ((kind, min(end, stop) - max(end - count, start)) for (kind, count), end in zip(runs, ends, strict=True))
    return tuple((kind, count) for kind, count in parts if count > 0)


def _off_plane(layout: Layout) -> bool:
    if layout.grid is not None or layout.boxes is not None:
        return False
    if layout.centre.is_meta or torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return True
    return bool(layout.centre.isnan().all())
