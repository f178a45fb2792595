"""Relative position index: the bucket id of every pair of tokens, once per grid, or per batch where tokens are boxes.

Ids of full grids depend on the rule and the two grids alone, so all layers, stacks and models share one cache, kept as
the smallest integers that hold them and bounded in bytes. Boxes, several pictures in one sequence and sentences are
computed from their coordinates.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from vlcli.errors import ComponentError
from vlcli.nn import Layout
from vlcli_irpe.buckets import BucketRule

Align = Literal["cells", "extent"]
Indices = tuple[Tensor, ...]


@dataclass(frozen=True)
class TokenGrid:
    """A full grid in row-major order with tokens off the plane around it.

    Attributes:
        rows: of the grid.
        columns: of the grid.
        front: tokens before it (class tokens, a sentence).
        back: tokens behind it.
    """

    rows: int
    columns: int
    front: int = 0
    back: int = 0

    @property
    def outside(self) -> int:
        """How many tokens are off the plane."""
        return self.front + self.back


@dataclass(frozen=True)
class AxisIndex:
    """Ids of the Cross method on full grids: an id depends on the other token's row, or column, alone.

    Attributes:
        rows: (1, 1, T, rows of the other grid) int64; tokens off the plane have the extra id throughout.
        columns: (1, 1, T, columns of the other grid) int64.
        other: the other grid.
    """

    rows: Tensor
    columns: Tensor
    other: TokenGrid


@dataclass(frozen=True)
class RelativeIndex:
    """Bucket ids of every pair, one tensor per table of the rule.

    Attributes:
        keys: each (B or 1, 1, Tq, Tk) int64: the bucket of query minus key; or by axis, each query against the keys'
            grid.
        queries: likewise, the bucket of key minus query, laid out (query, key) too, or by axis, each key against the
            queries' grid; empty where not asked for.
        outside: whether some pair may be off the plane; its id is then ``rule.buckets``.
        grid: of queries and keys, where both are the same full one.
    """

    keys: Indices | AxisIndex
    queries: Indices | AxisIndex
    outside: bool
    grid: TokenGrid | None = None


def by_pair(ids: Indices | AxisIndex) -> Indices:
    """Ids as :func:`bucket_ids` returns them without ``axes``: one tensor (B or 1, 1, Tq, Tk) per table."""
    assert not isinstance(ids, AxisIndex)
    return ids


def bucket_ids(
    rule: BucketRule,
    x_layout: Layout,
    y_layout: Layout,
    *,
    mirrored: bool = False,
    cells: int = 14,
    align: Align = "cells",
    axes: bool = False,
    queries: bool = False,
) -> RelativeIndex:
    """Bucket ids of queries ``x_layout`` against keys ``y_layout``.

    Args:
        rule: which buckets there are.
        x_layout: layout of the queries.
        y_layout: layout of the keys.
        mirrored: also give the ids of key minus query.
        cells: cells per side of the grid that centres of boxes are measured on.
        align: for grids of two sizes: count both in their own cells, or stretch the queries' grid over the keys'.
        axes: give ids by axis where the rule and the layouts allow it.
        queries: with ``axes``: whether the side of the queries is used at all.
    """
    (here, own), (there, other) = token_grid(x_layout), token_grid(y_layout)
    if here is not None and there is not None and own == other and rule.method != "sequence":
        device = x_layout.centre.device
        if axes and rule.method == "cross":
            return _by_axis(rule, here, there, align, mirrored, queries, device)
        keys = _wide(CACHE.get(rule, here, there, align, False, device))
        mirror = _wide(CACHE.get(rule, here, there, align, True, device)) if mirrored else ()
        return RelativeIndex(keys, mirror, bool(here.outside + there.outside), here if here == there else None)
    return _from_coordinates(rule, x_layout, y_layout, mirrored, cells, align)


def token_grid(layout: Layout) -> tuple[TokenGrid | None, int]:
    """The grid of a layout and the number of its image; None where tokens form no grid (or a program is traced)."""
    if layout.grid is None or layout.boxes is not None or torch.compiler.is_compiling():
        return None, 0
    rows, columns = layout.grid
    if layout.centre.device.type == "meta":
        return TokenGrid(rows, columns, len(layout) - rows * columns), 0
    version = (layout.grid, 0 if layout.centre.is_inference() else layout.centre._version)
    known = _read.get(layout.centre)
    if known is None or known[0] != version:
        known = (version, _read_grid(layout))
        _read[layout.centre] = known
    grid: tuple[TokenGrid | None, int] = known[1]
    return grid


# What was read from a layout's tensor, so that a model that keeps its layout never waits for the device.
_read: WeakIdKeyDictionary = WeakIdKeyDictionary()


def _read_grid(layout: Layout) -> tuple[TokenGrid | None, int]:
    rows, columns = layout.grid or (0, 0)
    off = layout.centre[..., 0].isnan()
    alike = layout.centre.stride(0) == 0 or bool((off == off[:1]).all())
    listed = off[0].tolist()
    front = listed.index(False) if False in listed else len(listed)
    back = len(listed) - front - rows * columns
    whole = back >= 0 and not any(listed[front : front + rows * columns]) and all(listed[front + rows * columns :])
    if not (alike and whole):
        return None, 0
    return TokenGrid(rows, columns, front, back), int(layout.source[0, front])


def grid_ids(rule: BucketRule, x: TokenGrid, y: TokenGrid, align: Align = "cells", mirrored: bool = False) -> Indices:
    """Ids of one pair of grids, computed anew: each (Tq, Tk) int64 on the CPU."""
    rows, columns = _axis(x.rows, y.rows, align), _axis(x.columns, y.columns, align)
    if mirrored:
        rows, columns = -rows, -columns
    tables = rule(rows[:, None, :, None], columns[None, :, None, :])  # (hq, wq, hk, wk)
    return tuple(_framed(table.reshape(x.rows * x.columns, -1), x, y, rule.buckets) for table in tables)


def _axis(here: int, there: int, align: Align) -> Tensor:
    x = torch.arange(here, device="cpu", dtype=torch.float64)
    y = torch.arange(there, device="cpu", dtype=torch.float64)
    if align == "extent" and here != there:
        x = (x + 0.5) * (there / here) - 0.5
    return x[:, None] - y


def axis_buckets(rule: BucketRule, grid: TokenGrid) -> tuple[Tensor, Tensor]:
    """What Product's id of a pair consists of: the bucket of both rows (rows, rows), and of both columns."""
    side, none = 2 * rule.bound + 1, torch.zeros(1, device="cpu")
    rows, columns = _axis(grid.rows, grid.rows, "cells"), _axis(grid.columns, grid.columns, "cells")
    return rule(rows, none)[0] // side, rule(none, columns)[0] % side


def _framed(ids: Tensor, x: TokenGrid, y: TokenGrid, extra: int) -> Tensor:
    if not (x.outside or y.outside):
        return ids
    wide = ids.new_full((len(ids) + x.outside, ids.shape[1] + y.outside), extra)
    wide[x.front : x.front + len(ids), y.front : y.front + ids.shape[1]] = ids
    return wide


def _by_axis(
    rule: BucketRule, x: TokenGrid, y: TokenGrid, align: Align, mirrored: bool, queries: bool, device: torch.device
) -> RelativeIndex:
    rows, columns = _wide(CACHE.get(rule, x, y, align, False, device, "rows"))
    keys = AxisIndex(rows, columns, y)
    made: Indices | AxisIndex = ()
    if queries:
        rows, columns = _wide(CACHE.get(rule, x, y, align, mirrored, device, "columns"))
        made = AxisIndex(rows, columns, x)
    return RelativeIndex(keys, made, bool(x.outside + y.outside))


def axis_ids(rule: BucketRule, x: TokenGrid, y: TokenGrid, align: Align, mirrored: bool, of: str) -> Indices:
    """Cross ids (T, rows of the other grid) and (T, columns of the other grid) of the queries, or ``of`` the keys."""
    rows, columns = _axis(x.rows, y.rows, align), _axis(x.columns, y.columns, align)
    if mirrored:
        rows, columns = -rows, -columns
    grid = x
    if of == "columns":
        rows, columns, grid = rows.T, columns.T, y
    blank = torch.zeros(1, device="cpu")
    by_row = rule(rows, blank)[0].repeat_interleave(grid.columns, 0)  # (h w, other rows)
    by_column = rule(blank, columns)[1].repeat(grid.rows, 1)
    return tuple(_framed(ids, grid, TokenGrid(1, ids.shape[1]), rule.buckets) for ids in (by_row, by_column))


class IndexCache:
    """Ids of grids already seen; those unused for longest are dropped first.

    Args:
        limit: bytes to keep.
    """

    def __init__(self, limit: int = 256 * 2**20) -> None:
        self.limit, self.size, self.built = limit, 0, 0
        self._kept: OrderedDict[tuple[object, ...], Indices] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self,
        rule: BucketRule,
        x: TokenGrid,
        y: TokenGrid,
        align: Align,
        mirrored: bool,
        device: torch.device,
        axes: str = "",
    ) -> Indices:
        """Ids (Tq, Tk) as int16 or int32 on ``device``; with ``axes`` those of :func:`axis_ids`."""
        key = (rule, x, y, align, mirrored, device, axes)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        self.built += 1
        small = torch.int16 if rule.buckets < 2**15 else torch.int32
        with torch.inference_mode(False):  # else the first evaluation would leave ids that training cannot use
            whole = axis_ids(rule, x, y, align, mirrored, axes) if axes else grid_ids(rule, x, y, align, mirrored)
            made = tuple(ids.to(small).to(device) for ids in whole)
        if all(type(ids) is Tensor for ids in made):  # tensors of a tracer must not outlive it
            self._keep(key, made)
        return made

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self.size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def _keep(self, key: tuple[object, ...], made: Indices) -> None:
        with self._lock:
            self._kept[key] = made
            self.size = sum(map(_bytes, self._kept.values()))
            while self.size > self.limit and len(self._kept) > 1:
                self.size -= _bytes(self._kept.popitem(last=False)[1])


CACHE = IndexCache()
"""The one cache of this process."""


def _bytes(ids: Indices) -> int:
    return sum(part.numel() * part.element_size() for part in ids)


def _wide(ids: Indices) -> Indices:
    # gather wants int64 (int32 is converted inside, slower); one copy serves all layers of a forward pass.
    return tuple(part.long()[None, None] for part in ids)


def _from_coordinates(
    rule: BucketRule, x_layout: Layout, y_layout: Layout, mirrored: bool, cells: int, align: Align
) -> RelativeIndex:
    x, y = _coordinates(rule, x_layout, cells), _coordinates(rule, y_layout, cells)
    if align == "extent" and x_layout.grid and y_layout.grid and x_layout.grid != y_layout.grid:
        share = x.new_tensor(y_layout.grid) / x.new_tensor(x_layout.grid)
        x = (x + 0.5) * share - 0.5
    offsets = (x[:, :, None] - y[:, None]).round()  # (B, Tq, Tk, 2)
    apart = offsets.isnan().any(-1) | (x_layout.source[:, :, None] != y_layout.source[:, None])
    offsets = offsets.nan_to_num(0.0)
    keys = rule(offsets[..., 0], offsets[..., 1])
    queries = rule(-offsets[..., 0], -offsets[..., 1]) if mirrored else ()
    return RelativeIndex(_marked(keys, apart, rule), _marked(queries, apart, rule), True)


def _marked(ids: Indices, apart: Tensor, rule: BucketRule) -> Indices:
    return tuple(part.masked_fill(apart, rule.buckets)[:, None] for part in ids)


def _coordinates(rule: BucketRule, layout: Layout, cells: int) -> Tensor:
    if rule.method != "sequence":
        return layout.centre * cells if layout.boxes is not None else layout.centre
    if layout.boxes is not None:
        raise ComponentError(
            "Boxes have no order, so a one-dimensional encoding cannot number them.",
            where="position with plane: sequence",
            expected="a sentence or a grid",
            hint="use plane: product",
        )
    columns = layout.grid[1] if layout.grid else 0
    line = layout.centre[..., 0] * columns + layout.centre[..., 1]
    line = torch.where(layout.index >= 0, layout.index.to(line.dtype), line)
    return torch.stack([line, torch.zeros_like(line)], -1)
