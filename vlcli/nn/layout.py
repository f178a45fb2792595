"""Where each token of a sequence stands: which modality, which source, which place.

Attention, position encodings and experts read a layout instead of counting tokens, so a sequence may mix sentences,
concepts, boxes and grids in any order and number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from vlcli.nn.batch import Tensors

TEXT, IMAGE, CONCEPT = 0, 1, 2
"""Routes that models here use; a model may number its own."""
SPECIAL = 3
"""Route of separators and class tokens in models that give them one of their own."""

Runs = tuple[tuple[int, int], ...]
"""Neighbouring tokens of one route, as (route, number of tokens) from the left."""


@dataclass
class Layout(Tensors):
    """Facts per token; the leading dimension is B, or 1 where the whole batch shares them.

    Attributes:
        route: (B, T) which projections or expert a token takes.
        source: (B, T) which sentence or image it comes from (0, 1, ...); may differ from the route: a concept is
            textual, yet belongs to its image.
        index: (B, T) place in its sentence, 0-based; -1 off any sentence.
        centre: (B, T, 2) row and column on its image; in cells for a grid, in [0, 1] for boxes; NaN off any plane.
        special: (B, T) bool: class tokens and separators, which have no place.
        valid: (B, T) bool: False at padding.
        grid: rows and columns where the image tokens form one full grid in row-major order, else None.
        boxes: (B, T, 4) boxes in [0, 1]; zeros at tokens that are no boxes; None where no token is a box.
        runs: (route, length) of neighbouring tokens of one route, where every row has the same; None where it is not
            known. What works route by route then cuts columns and need not look for tokens.
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
        """A sentence per row: ``mask`` (B, T) bool."""
        count = mask.shape[1]
        index = torch.arange(count, device=mask.device).expand_as(mask)
        nowhere = torch.full((*mask.shape, 2), torch.nan, device=mask.device)
        flat = torch.zeros_like(mask, dtype=torch.long)
        special = torch.zeros_like(mask) if special is None else special
        return cls(flat + route, flat + source, index, nowhere, special, mask, runs=((route, count),))

    @classmethod
    def for_boxes(cls, boxes: Tensor, mask: Tensor, *, route: int = IMAGE, source: int = 0) -> Self:
        """A set of boxes per row: ``boxes`` (B, R, 4) in [0, 1], ``mask`` (B, R) bool."""
        centre = torch.stack([boxes[..., 1] + boxes[..., 3], boxes[..., 0] + boxes[..., 2]], -1) / 2
        flat = torch.zeros_like(mask, dtype=torch.long)
        off = torch.zeros_like(mask)
        runs = ((route, mask.shape[1]),)
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
        """A grid in row-major order behind ``skip`` special tokens, shared by the batch (leading dimension 1)."""
        count = skip + rows * columns
        place = torch.cartesian_prod(torch.arange(float(rows)), torch.arange(float(columns))).reshape(-1, 2)
        centre = torch.cat([torch.full((skip, 2), torch.nan), place])[None]
        special = (torch.arange(count) < skip)[None]
        flat = torch.zeros(1, count, dtype=torch.long)
        real = torch.ones_like(special)
        runs, grid = ((route, count),), (rows, columns)
        made = cls(flat + route, flat + source, flat - 1, centre, special, real, grid, runs=runs)
        return made if device is None else made.to(device)

    def __len__(self) -> int:
        """How many tokens a row has."""
        count: int = self.route.shape[1]
        return count

    def __add__(self, other: Layout) -> Layout:
        """One sequence after the other; a grid survives beside tokens that lie on no plane."""
        mine, its = self.route.shape[0], other.route.shape[0]  # no len(): an exported graph keeps its batch free
        rows = its if mine == 1 else mine
        left, right = self.expand(rows), other.expand(rows)
        grid = None
        if left.grid is not None or right.grid is not None:  # else nothing need be looked at
            grid = left.grid if _off_plane(right) else right.grid if _off_plane(left) else None
        joined = {
            name: torch.cat([getattr(left, name), getattr(right, name)], 1)
            for name in ("route", "source", "index", "centre", "special", "valid")
        }
        runs = None if left.runs is None or right.runs is None else merged((*left.runs, *right.runs))
        return Layout(**joined, grid=grid, boxes=_join_boxes(left, right), runs=runs)

    def expand(self, rows: int) -> Layout:
        """With a leading dimension of ``rows`` (only from 1)."""
        if self.route.shape[0] == rows:
            return self
        return self.map(lambda tensor: tensor.expand(rows, *tensor.shape[1:]))

    def with_route(self, route: int) -> Layout:
        """The same places, taken by another route."""
        return replace(self, route=torch.full_like(self.route, route), runs=((route, self.route.shape[1]),))

    def cut(self, start: int, stop: int) -> Layout:
        """The tokens from ``start`` up to ``stop``; a grid does not survive."""
        runs = None if self.runs is None else cut_runs(self.runs, start, stop)
        return replace(self.map(lambda tensor: tensor[:, start:stop]), grid=None, runs=runs)

    def columns(self, route: int) -> list[tuple[int, int]]:
        """Where the tokens of a route are, in (start, stop); rows must agree, and are asked only without ``runs``."""
        found, place = [], 0
        runs = self.runs if self.runs is not None else merged([(kind, 1) for kind in self.route[0].tolist()])
        for kind, count in runs:
            if kind == route:
                found.append((place, place + count))
            place += count
        return found

    def grouped(self, sets: tuple[int, ...]) -> tuple[list[Tensor], Tensor]:
        """Tokens of the flattened (B * T) by set, and the order that puts them back: found once per layout.

        Args:
            sets: the set of each route.

        Returns:
            Places of each set's tokens, and for every token its place among all sets' tokens put one after another.
        """
        kept = self.__dict__.setdefault("_grouped", {})
        if sets not in kept:
            which = torch.tensor(sets, device=self.route.device)[self.route].flatten()  # (B * T,)
            groups = [(which == number).nonzero()[:, 0] for number in range(max(sets) + 1)]
            kept[sets] = (groups, torch.cat(groups).argsort())
        found: tuple[list[Tensor], Tensor] = kept[sets]
        return found


def merged(runs: Iterable[tuple[int, int]]) -> Runs:
    """Runs whose neighbours of one route are one run."""
    made: list[tuple[int, int]] = []
    for route, count in runs:
        if made and made[-1][0] == route:
            made[-1] = (route, made[-1][1] + count)
        else:
            made.append((route, count))
    return tuple(made)


def cut_runs(runs: Runs, start: int, stop: int) -> Runs:
    """The runs of the columns from ``start`` up to ``stop``."""
    made, place = [], 0
    for route, count in runs:
        length = min(place + count, stop) - max(place, start)
        if length > 0:
            made.append((route, length))
        place += count
    return tuple(made)


def _off_plane(layout: Layout) -> bool:
    if layout.grid is not None or layout.boxes is not None:
        return False
    if layout.centre.is_meta or torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return True
    return bool(layout.centre.isnan().all())


def _join_boxes(left: Layout, right: Layout) -> Tensor | None:
    if left.boxes is None and right.boxes is None:
        return None
    parts = []
    for side in (left, right):
        blank = torch.zeros(*side.route.shape, 4, device=side.route.device)
        parts.append(blank if side.boxes is None else side.boxes)
    return torch.cat(parts, 1)
