"""Computes attention with Product's terms a few heads at a time, without a term for all pairs (CPU, inference).

On a full grid Product's id splits: ``id = r * side + c``, where r depends on the rows of both tokens and c on their
columns. The term of a query on the keys of one row of the grid is therefore one of ``side`` stretches as long as that
row: the stretches of a head are looked up (a third of a look-up for every pair, less on larger grids), and then copied
as wholes. The scores of a head are added onto them, and all stays in the processor's cache until the next head.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product
from operator import iadd

import torch
from torch import Tensor

from vlcli_irpe.buckets import BucketRule
from vlcli_irpe.relative_index import TokenGrid, axis_buckets

# Least number of tokens with which it is faster
LEAST = 256


@dataclass(frozen=True)
class Stretches:
    """The stretches of which one term is put together.

    ``index`` (stretches, columns) int64: the elements of one head's z (T * K) in each stretch; ``picks`` (T * groups,)
    int32: the stretch of each query and group of keys.
    """

    index: Tensor
    picks: Tensor

    def term(self, z: Tensor, groups: int) -> Tensor:
        """Return the term of some heads, from z (n, T, K): (n, T, groups * columns), padded in front and behind."""
        n, tokens = z.shape[:2]
        table = z.flatten(1).gather(1, self.index.flatten().expand(n, -1)).view(-1, self.index.shape[1])
        first = torch.arange(n, dtype=torch.int32)[:, None] * len(self.index)
        picks = (self.picks + first).flatten() if n > 1 else self.picks  # (n * T * groups,)
        return table.index_select(0, picks).view(n, tokens, groups * self.index.shape[1])


@dataclass(frozen=True)
class GridBlocks:
    """The stretches of a grid for both terms on scores, and masks that sum probabilities per bucket.

    ``rows`` (rows, side, rows) is 1 where a key's row falls into the bucket, for each query's row;
    ``columns`` (columns, columns, side) likewise, the bucket last.
    """

    grid: TokenGrid
    front: int
    groups: int
    keys: Stretches
    queries: Stretches
    rows: Tensor
    columns: Tensor

    @property
    def held(self) -> slice:
        start = self.front * self.grid.columns - self.grid.front
        return slice(start, start + self.grid.rows * self.grid.columns + self.grid.outside)

    def bucket_sums(self, weights: Tensor) -> Tensor:
        """Sums probabilities (n, T, groups * columns) per bucket: (n, T, buckets and the extra one)."""
        shape, first = (self.grid.rows, self.grid.columns), self.front * self.grid.columns
        last = first + math.prod(shape)
        plane = slice(self.grid.front, self.grid.front + math.prod(shape))  # the tokens of the plane
        sums = weights.new_zeros(*weights.shape[:2], self.rows.shape[1] ** 2 + 1)
        sums[..., -1] = weights.sum(-1)  # of queries off the plane, whose keys all fall into the extra bucket
        seen = weights[:, plane]
        met = self.rows[:, None] @ seen[..., first:last].unflatten(2, shape).unflatten(1, shape)  # (n, y, x, side, x')
        sums[:, plane, :-1] = (met @ self.columns).flatten(3).flatten(1, 2)
        sums[:, plane, -1] = seen[..., :first].sum(-1) + seen[..., last:].sum(-1)
        return sums


def blocked_attention(
    q: Tensor, k: Tensor, v: Tensor, blocks: GridBlocks, terms: Sequence[tuple[Stretches, Tensor]], table: Tensor | None
) -> Tensor:
    """Return the attention (B, H, T, d) of one layer, a few heads at a time: as many as there are threads.

    ``terms`` are the stretches of each term on the scores, with its z (B, H, T, K); ``table`` is that of values,
    (1 or H, K, d).
    """
    rows, heads, tokens, width = q.shape
    out = q.new_empty(rows, tokens, heads, width).transpose(1, 2)  # (B, H, T, d)
    together, held = min(heads, torch.get_num_threads()), blocks.held
    for row, first in product(range(rows), range(0, heads, together)):
        part = slice(first, first + together)  # n heads
        scores = reduce(iadd, (stretches.term(z[row, part], blocks.groups) for stretches, z in terms))
        scores[..., held].baddbmm_(q[row, part], k[row, part].transpose(-1, -2), alpha=width**-0.5)
        scores[..., : held.start] = scores[..., held.stop :] = -torch.inf
        weights = scores.softmax(-1)  # (n, T, groups * columns)
        mixed = weights[..., held] @ v[row, part]  # (n, T, d)
        if table is not None:
            of_heads = table if len(table) == 1 else table[part]
            mixed = mixed + blocks.bucket_sums(weights)[..., : table.shape[1]] @ of_heads
        out[row, part] = mixed
    return out


@lru_cache(8)
def grid_blocks(rule: BucketRule, grid: TokenGrid, mirrored: bool) -> GridBlocks:
    """Returns the stretches of a grid against itself, made once."""
    rows, columns = axis_buckets(rule, grid)  # (rows, rows), (columns, columns)
    side, width = 2 * rule.bound + 1, grid.columns
    front, back = (math.ceil(count / width) for count in (grid.front, grid.back))
    with torch.inference_mode(False):
        cells, extra, groups = torch.arange(grid.rows * width), side * side, front + grid.rows + back
        tokens = torch.arange(len(cells) + grid.outside)  # (T,)
        plane, middle = slice(grid.front, grid.front + len(cells)), slice(front, front + grid.rows)
        # Each query has a stretch for each bucket of rows, and one more of what pairs off the plane get.
        index = torch.full((len(tokens), side + 1, width), extra)
        index[plane, :side] = torch.arange(side)[:, None] * side + columns[cells % width][:, None]
        index += tokens[:, None, None] * (extra + 1)
        picks = torch.full((len(tokens), groups), side)
        picks[plane, middle] = rows[cells // width]
        picks += tokens[:, None] * (side + 1)
        keys = Stretches(index.flatten(0, 1), picks.flatten().int())
        # Each row of keys has a stretch for each column of queries and bucket of rows, and one for those off the plane.
        met_rows, met_columns = (rows.T, columns.T) if mirrored else (rows, columns)
        key = grid.front + cells.view(grid.rows, width)  # (y', x')
        bucket = torch.arange(side)[:, None, None] * side + met_columns[:, None, None]  # (x, r, 1, x')
        inner = key * (extra + 1) + bucket  # (x, r, y', x')
        off = tokens * (extra + 1) + extra  # (T,): whatever the query
        before, behind = front * width - grid.front, back * width - grid.back
        framed = torch.cat([off[:1].repeat(before), off, off[-1:].repeat(behind)]).view(-1, width)  # (groups, x')
        picks = (inner[..., 0].numel() + torch.arange(groups)).repeat(len(tokens), 1)  # (T, groups)
        stretch = (cells[:, None] % width * side + met_rows[cells // width]) * grid.rows + torch.arange(grid.rows)
        picks[plane, middle] = stretch
        queries = Stretches(torch.cat([inner.flatten(0, 2), framed]), picks.flatten().int())
        by_row = torch.stack([rows == bucket for bucket in range(side)], 1).float()
        by_column = torch.stack([columns == bucket for bucket in range(side)], 2).float()
    return GridBlocks(grid, front, groups, keys, queries, by_row, by_column)
