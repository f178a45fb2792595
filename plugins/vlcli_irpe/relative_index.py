"""Computes the bucket id of every pair of tokens, once per grid, or per batch where tokens are boxes.

Ids of full grids depend on the rule and the two grids alone, so all layers, stacks and models share one cache, kept as
the smallest integers that hold them and bounded in bytes. Boxes, several pictures in one sequence and sentences are
computed from their coordinates.
"""

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
    """A full grid in row-major order, with ``front`` tokens off the plane before it and ``back`` behind it."""

    rows: int
    columns: int
    front: int = 0
    back: int = 0

    @property
    def outside(self) -> int:
        return self.front + self.back


@dataclass(frozen=True)
class AxisIndex:
    """Ids of the Cross method on full grids: an id depends on the other token's row, or column, alone.

    ``rows`` (1, 1, T, rows of the other grid) and ``columns`` (1, 1, T, columns of the other grid) are int64; tokens
    off the plane have the extra id throughout.
    """

    other: TokenGrid
    rows: Tensor
    columns: Tensor


@dataclass(frozen=True)
class RelativeIndex:
    """Bucket ids of every pair, one tensor per table of the rule.

    Attributes:
        keys: each (B or 1, 1, Tq, Tk) int64: the bucket of query minus key; or by axis, each query against the keys'
            grid.
        queries: likewise key minus query, laid out (query, key) too, or by axis; empty if not asked for.
        outside: whether some pair may be off the plane; its id is then ``rule.buckets``.
        grid: of queries and keys, where both are the same full one.
    """

    keys: Indices | AxisIndex
    queries: Indices | AxisIndex
    outside: bool
    grid: TokenGrid | None = None


def by_pair(ids: Indices | AxisIndex) -> Indices:
    """Returns ids that :func:`bucket_ids` gave without ``axes``: one tensor (B or 1, 1, Tq, Tk) per table."""
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
    """Return the bucket ids of queries ``x_layout`` against keys ``y_layout``.

    Args:
        cells: cells per side of the grid that centres of boxes are measured on.
        align: for grids of two sizes: count both in their own cells, or stretch the queries' grid over the keys'.
        axes: give ids by axis where the rule and the layouts allow it, of the queries' side only if ``queries``.
    """
    (x, x_source), (y, y_source), device = token_grid(x_layout), token_grid(y_layout), x_layout.centre.device
    if x is None or y is None or x_source != y_source or rule.method == "sequence":
        return _from_coordinates(rule, x_layout, y_layout, mirrored, cells, align)

    def ids(mirror: bool, of: str = "") -> Indices:
        # gather wants int64 (int32 is converted inside, slower); one copy serves all layers of a forward pass.
        return tuple(part.long()[None, None] for part in CACHE.get(rule, x, y, align, mirror, device, of))

    outside = bool(x.outside + y.outside)
    if axes and rule.method == "cross":
        by_columns = AxisIndex(x, *ids(mirrored, "columns")) if queries else ()
        return RelativeIndex(AxisIndex(y, *ids(False, "rows")), by_columns, outside)
    return RelativeIndex(ids(False), ids(True) if mirrored else (), outside, x if x == y else None)


def token_grid(layout: Layout) -> tuple[TokenGrid | None, int]:
    """Returns the grid of a layout and the number of its image; None where tokens form no grid or torch compiles."""
    if layout.grid is None or layout.boxes is not None or torch.compiler.is_compiling():
        return None, 0
    (rows, columns), centre = layout.grid, layout.centre
    if centre.device.type == "meta":
        return TokenGrid(rows, columns, len(layout) - rows * columns), 0
    version = (layout.grid, 0 if centre.is_inference() else centre._version)
    if (known := _read.get(centre)) is not None and known[0] == version:
        return known[1]  # type: ignore[no-any-return]
    off = centre[..., 0].isnan()  # (B, T)
    alike = centre.stride(0) == 0 or bool((off == off[:1]).all())
    listed = off[0].tolist()
    front = [*listed, False].index(False)
    back = len(listed) - front - rows * columns
    grid: tuple[TokenGrid | None, int] = (None, 0)
    if alike and listed == [True] * front + [False] * (rows * columns) + [True] * back:
        grid = TokenGrid(rows, columns, front, back), int(layout.source[0, front])
    _read[centre] = (version, grid)
    return grid


# What was read from a layout's tensor, so that a model that keeps its layout never waits for the device.
_read: WeakIdKeyDictionary = WeakIdKeyDictionary()


def grid_ids(rule: BucketRule, x: TokenGrid, y: TokenGrid, align: Align = "cells", mirrored: bool = False) -> Indices:
    """Computes the ids of one pair of grids: each (Tq, Tk) int64 on the CPU."""
    rows, columns = _offsets(x, y, align, mirrored)
    tables = rule(rows[:, None, :, None], columns[None, :, None, :])  # (hq, wq, hk, wk)
    return tuple(_framed(table.reshape(x.rows * x.columns, -1), x, y, rule.buckets) for table in tables)


def axis_ids(rule: BucketRule, x: TokenGrid, y: TokenGrid, align: Align, mirrored: bool, of: str) -> Indices:
    """Compute the ids of Cross by axis: (T, rows of the other grid) and (T, columns of the other grid).

    ``of`` is ``rows``: of the queries against the keys' rows and columns; or ``columns``: the reverse.
    """
    offsets = _offsets(x, y, align, mirrored)
    rows, columns = (part.T for part in offsets) if of == "columns" else offsets
    grid = y if of == "columns" else x
    blank = torch.zeros(1, device="cpu")
    by_row = rule(rows, blank)[0].repeat_interleave(grid.columns, 0)  # (h w, other rows)
    by_column = rule(blank, columns)[1].repeat(grid.rows, 1)  # (h w, other columns)
    return tuple(_framed(ids, grid, TokenGrid(1, ids.shape[1]), rule.buckets) for ids in (by_row, by_column))


def axis_buckets(rule: BucketRule, grid: TokenGrid) -> tuple[Tensor, Tensor]:
    """Returns the two parts of Product's id: the bucket of both rows (rows, rows), and of both columns."""
    side, none = 2 * rule.bound + 1, torch.zeros(1, device="cpu")
    rows, columns = _offsets(grid, grid, "cells", False)
    return rule(rows, none)[0] // side, rule(none, columns)[0] % side


def _offsets(x: TokenGrid, y: TokenGrid, align: Align, mirrored: bool) -> tuple[Tensor, Tensor]:
    def along(here: int, there: int) -> Tensor:
        queries, keys = (torch.arange(side, device="cpu", dtype=torch.float64) for side in (here, there))
        if align == "extent" and here != there:
            queries = (queries + 0.5) * (there / here) - 0.5
        offsets = queries[:, None] - keys  # (here, there)
        return -offsets if mirrored else offsets

    return along(x.rows, y.rows), along(x.columns, y.columns)


def _framed(ids: Tensor, x: TokenGrid, y: TokenGrid, extra: int) -> Tensor:
    if not (x.outside or y.outside):
        return ids
    framed = ids.new_full((len(ids) + x.outside, ids.shape[1] + y.outside), extra)  # (Tq, Tk)
    framed[x.front : x.front + len(ids), y.front : y.front + ids.shape[1]] = ids
    return framed


class IndexCache:
    """Ids of grids already seen; those unused for longest are dropped first."""

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
        """Returns ids (Tq, Tk) as int16 or int32 on ``device``; with ``axes`` those of :func:`axis_ids`."""
        key = (rule, x, y, align, mirrored, device, axes)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        self.built += 1
        small = torch.int16 if rule.buckets < 2**15 else torch.int32
        with torch.inference_mode(False):  # else the first evaluation would leave ids that training cannot use
            whole = axis_ids(rule, x, y, align, mirrored, axes) if axes else grid_ids(rule, x, y, align, mirrored)
            ids = tuple(part.to(small).to(device) for part in whole)
        if all(type(part) is Tensor for part in ids):  # tensors of a tracer must not outlive it
            with self._lock:
                self._kept[key] = ids
                self.size = sum(part.nbytes for parts in self._kept.values() for part in parts)
                while self.size > self.limit and len(self._kept) > 1:
                    self.size -= sum(part.nbytes for part in self._kept.popitem(last=False)[1])
        return ids

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.size = 0

    def __len__(self) -> int:
        return len(self._kept)


CACHE = IndexCache()


def _from_coordinates(
    rule: BucketRule, x_layout: Layout, y_layout: Layout, mirrored: bool, cells: int, align: Align
) -> RelativeIndex:
    x, y = _coordinates(rule, x_layout, cells), _coordinates(rule, y_layout, cells)  # (B, T, 2)
    if align == "extent" and x_layout.grid and y_layout.grid and x_layout.grid != y_layout.grid:
        x = (x + 0.5) * (x.new_tensor(y_layout.grid) / x.new_tensor(x_layout.grid)) - 0.5
    offsets = (x[:, :, None] - y[:, None]).round()  # (B, Tq, Tk, 2)
    apart = offsets.isnan().any(-1) | (x_layout.source[:, :, None] != y_layout.source[:, None])  # (B, Tq, Tk)
    rows, columns = offsets.nan_to_num(0.0).unbind(-1)  # (B, Tq, Tk)
    keys, queries = (
        tuple(part.masked_fill(apart, rule.buckets)[:, None] for part in ids)  # (B, 1, Tq, Tk)
        for ids in (rule(rows, columns), rule(-rows, -columns) if mirrored else ())
    )
    return RelativeIndex(keys, queries, True)


def _coordinates(rule: BucketRule, layout: Layout, cells: int) -> Tensor:
    # (B, T, 2) rows and columns in cells, NaN off the plane; for ``sequence`` the index in the sequence and 0.
    if rule.method != "sequence":
        return layout.centre * cells if layout.boxes is not None else layout.centre
    if layout.boxes is not None:
        what, hint = "Boxes have no order, so a one-dimensional encoding cannot number them.", "use plane: product"
        where, expected = "position with plane: sequence", "a sentence or a grid"
        raise ComponentError(what, where=where, expected=expected, hint=hint)
    columns = layout.grid[1] if layout.grid else 0
    line = layout.centre[..., 0] * columns + layout.centre[..., 1]  # (B, T)
    line = torch.where(layout.index >= 0, layout.index.to(line.dtype), line)
    return torch.stack([line, torch.zeros_like(line)], -1)
