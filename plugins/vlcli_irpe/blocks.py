"""Attention with Product's terms a few heads at a time, so that no term for all pairs is ever built (CPU, inference).

On a full grid Product's id splits: ``id = r * side + c``, where r depends on the rows of both tokens and c on their
columns. What a query gives the keys of one row of the grid is therefore one of ``side`` stretches as long as that row:
the stretches of a head are looked up (a third of a look-up for every pair, less on larger grids), and then copied as
wholes. The scores of a head are added onto them, and everything stays in the processor's cache until the next head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from vlcli_irpe.buckets import BucketRule
from vlcli_irpe.relative_index import TokenGrid, axis_buckets

LEAST = 256
"""Tokens from which on it is faster."""


@dataclass(frozen=True)
class Stretches:
    """How one term is put together.

    Attributes:
        index: (stretches, columns) int64: what each stretch has of one head's z (T * K).
        picks: (T * groups,) int32: the stretch of each query and group of keys.
    """

    index: Tensor
    picks: Tensor

    def term(self, z: Tensor, groups: int) -> Tensor:
        """The term of some heads, from z (n, T, K): (n, T, groups * columns), keys padded in front and behind."""
        n, tokens = z.shape[:2]
        table = z.flatten(1).gather(1, self.index.flatten().expand(n, -1)).view(-1, self.index.shape[1])
        picks = self.picks
        if n > 1:
            first = torch.arange(n, dtype=torch.int32) * len(self.index)
            picks = (picks + first[:, None]).flatten()
        return table.index_select(0, picks).view(n, tokens, groups * self.index.shape[1])


@dataclass(frozen=True)
class GridBlocks:
    """The stretches of a grid, for both terms on scores, and what sums probabilities per bucket.

    Attributes:
        grid: of queries and keys.
        front: groups of keys before the plane's.
        groups: of keys, each as long as a row of the grid.
        extra: the bucket of pairs off the plane.
        keys: the term on keys.
        queries: the term on queries.
        rows: (rows, side, rows) 1 where a key's row falls into the bucket, for each query's row.
        columns: (columns, columns, side) likewise, the bucket last.
    """

    grid: TokenGrid
    front: int
    groups: int
    extra: int
    keys: Stretches
    queries: Stretches
    rows: Tensor
    columns: Tensor

    @property
    def plane(self) -> slice:
        """The tokens of the plane."""
        return slice(self.grid.front, self.grid.front + self.grid.rows * self.grid.columns)

    @property
    def held(self) -> slice:
        """Where the keys lie in a term: between the paddings."""
        start = self.front * self.grid.columns - self.grid.front
        return slice(start, start + self.grid.rows * self.grid.columns + self.grid.outside)

    def bucket_sums(self, weights: Tensor) -> Tensor:
        """Probabilities (n, T, groups * columns) summed per bucket: (n, T, buckets and the extra one)."""
        shape, first = (self.grid.rows, self.grid.columns), self.front * self.grid.columns
        last = first + shape[0] * shape[1]
        sums = weights.new_zeros(*weights.shape[:2], self.extra + 1)
        sums[..., -1] = weights.sum(-1)  # of queries off the plane, whose keys all fall into the extra bucket
        seen = weights[:, self.plane]
        met = self.rows[:, None] @ seen[..., first:last].unflatten(2, shape).unflatten(1, shape)  # (n, y, x, side, x')
        sums[:, self.plane, :-1] = (met @ self.columns).flatten(3).flatten(1, 2)
        sums[:, self.plane, -1] = seen[..., :first].sum(-1) + seen[..., last:].sum(-1)
        return sums


@dataclass(frozen=True)
class BlockedAttention:
    """The attention of one layer, a few heads at a time: as many as there are threads.

    Attributes:
        blocks: of the grid.
        terms: how each term on the scores is put together, and its z (B, H, T, K).
        table: of values (1 or H, K, d), or None.
        scale: of the products of queries and keys.
    """

    blocks: GridBlocks
    terms: Sequence[tuple[Stretches, Tensor]]
    table: Tensor | None
    scale: float

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rows, heads, tokens, width = q.shape
        out = q.new_empty(rows, tokens, heads, width).transpose(1, 2)
        together = min(heads, torch.get_num_threads())
        for row in range(rows):
            for first in range(0, heads, together):
                part = slice(first, first + together)
                out[row, part] = self._heads(q[row, part], k[row, part], v[row, part], row, part)
        return out

    def _heads(self, q: Tensor, k: Tensor, v: Tensor, row: int, part: slice) -> Tensor:
        held = self.blocks.held
        scores, *more = (stretches.term(z[row, part], self.blocks.groups) for stretches, z in self.terms)
        for term in more:
            scores += term
        scores[..., held].baddbmm_(q, k.transpose(-1, -2), alpha=self.scale)
        scores[..., : held.start] = scores[..., held.stop :] = -torch.inf
        weights = scores.softmax(-1)
        mixed = weights[..., held] @ v
        if self.table is None:
            return mixed
        table = self.table if len(self.table) == 1 else self.table[part]
        return mixed + self.blocks.bucket_sums(weights)[..., : table.shape[1]] @ table


@lru_cache(8)
def grid_blocks(rule: BucketRule, grid: TokenGrid, mirrored: bool) -> GridBlocks:
    """The stretches of a grid against itself, made once.

    Args:
        rule: Product.
        grid: of queries and keys.
        mirrored: the term on queries looks up key minus query.
    """
    rows, columns = axis_buckets(rule, grid)  # (rows, rows), (columns, columns)
    side = 2 * rule.bound + 1
    front, back = (math.ceil(count / grid.columns) for count in (grid.front, grid.back))
    with torch.inference_mode(False):
        return GridBlocks(
            grid,
            front,
            front + grid.rows + back,
            rule.buckets,
            _of_keys(rows, columns, grid, side, front, back),
            _of_queries(*((rows.T, columns.T) if mirrored else (rows, columns)), grid, side, front, back),
            torch.stack([rows == bucket for bucket in range(side)], 1).float(),
            torch.stack([columns == bucket for bucket in range(side)], 2).float(),
        )


def _places(grid: TokenGrid) -> tuple[Tensor, Tensor]:
    cells = torch.arange(grid.rows * grid.columns)
    return cells // grid.columns, cells % grid.columns


def _of_keys(rows: Tensor, columns: Tensor, grid: TokenGrid, side: int, front: int, back: int) -> Stretches:
    y, x = _places(grid)
    count, extra = len(y) + grid.outside, side * side
    inner = slice(grid.front, grid.front + len(y))
    index = torch.full((count, side + 1, grid.columns), extra)
    index[inner, :side] = torch.arange(side)[:, None] * side + columns[x][:, None]
    index += torch.arange(count)[:, None, None] * (extra + 1)
    picks = torch.full((count, front + grid.rows + back), side)
    picks[inner, front : front + grid.rows] = rows[y]
    picks += torch.arange(count)[:, None] * (side + 1)
    return Stretches(index.flatten(0, 1), picks.flatten().int())


def _of_queries(rows: Tensor, columns: Tensor, grid: TokenGrid, side: int, front: int, back: int) -> Stretches:
    y, x = _places(grid)
    count, extra, wide = len(y) + grid.outside, side * side, grid.columns
    key = grid.front + torch.arange(len(y)).view(grid.rows, wide)  # (y', x')
    bucket = torch.arange(side)[:, None, None] * side + columns[:, None, None]  # (x, r, 1, x')
    inner = key * (extra + 1) + bucket  # (x, r, y', x')
    off = _framed(torch.arange(count) * (extra + 1) + extra, grid, front, back)  # (groups, x'): whatever the query
    index = torch.cat([inner.flatten(0, 2), off])
    groups = front + grid.rows + back
    picks = (inner[..., 0].numel() + torch.arange(groups)).repeat(count, 1)
    chosen = (x[:, None] * side + rows[y]) * grid.rows + torch.arange(grid.rows)
    picks[grid.front : grid.front + len(y), front : front + grid.rows] = chosen
    return Stretches(index, picks.flatten().int())


def _framed(values: Tensor, grid: TokenGrid, front: int, back: int) -> Tensor:
    wide = grid.columns
    before, behind = front * wide - grid.front, back * wide - grid.back
    return torch.cat([values[:1].repeat(before), values, values[-1:].repeat(behind)]).view(-1, wide)
