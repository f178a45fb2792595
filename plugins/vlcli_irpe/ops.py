"""The efficient form (paper Eq. 27): one product per bucket, then a look-up; for values, sums per bucket first.

    z = q P            (T, K)     once per bucket, not once per pair
    logits[i, j] = z[i, id(i, j)]
    values[i]    = sum over buckets of (sum of a[i, j] whose id is that bucket) P[bucket]

A look-up and the sum per bucket are each other's transpose, so the gradient of one is the other and nothing but the ids
is kept for it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from vlcli_irpe.relative_index import AxisIndex


def by_query(z: Tensor, ids: Tensor) -> Tensor:
    """``out[b, h, i, j] = z[b, h, i, ids[b, i, j]]``.

    Args:
        z: (B or 1, H, Tq, K).
        ids: (B or 1, 1, Tq, Tk) int64.

    Returns:
        (B, H, Tq, Tk).
    """
    rows = max(len(z), len(ids))
    return z.expand(rows, -1, -1, -1).gather(-1, ids.expand(rows, z.shape[1], -1, -1))


def by_key(z: Tensor, ids: Tensor) -> Tensor:
    """``out[b, h, i, j] = z[b, h, j, ids[b, i, j]]`` of z (B or 1, H, Tk, K) and ids (B or 1, 1, Tq, Tk)."""
    rows = max(len(z), len(ids))
    # Gathering along the bucket axis writes rows of queries in order: no transposed copy of the (Tq, Tk) result.
    return z.transpose(-1, -2).expand(rows, -1, -1, -1).gather(-2, ids.expand(rows, z.shape[1], -1, -1))


def bucket_sums(weights: Tensor, ids: Tensor, buckets: int) -> Tensor:
    """``out[b, h, i, k]`` = the sum of ``weights[b, h, i, j]`` over the j whose id is k.

    Args:
        weights: (B, H, Tq, Tk) probabilities.
        ids: (B or 1, 1, Tq, Tk) int64.
        buckets: K.

    Returns:
        (B, H, Tq, K); summed in float32 at least.
    """
    exact = weights if weights.dtype in (torch.float32, torch.float64) else weights.float()
    blank = exact.new_zeros(*exact.shape[:-1], buckets)
    return blank.scatter_add(-1, ids.expand_as(exact), exact).to(weights.dtype)


def with_blank(z: Tensor) -> Tensor:
    """``z`` (..., K) with one more bucket that is 0: what pairs off the plane look up where they get nothing."""
    return F.pad(z, (0, 1))


def by_query_axes(rows: Tensor, columns: Tensor, ids: AxisIndex) -> Tensor:
    """The sum of two look-ups, of rows and of columns, on a full grid: two small ones, and one sum over all pairs.

    Args:
        rows: (B or 1, H, T, K) what each token gives each row bucket, the extra one last.
        columns: likewise of column buckets.
        ids: of the tokens against the other grid.

    Returns:
        (B, H, T, Tk).
    """
    plane = (by_query(rows, ids.rows)[..., :, None] + by_query(columns, ids.columns)[..., None, :]).flatten(-2)
    if not ids.other.outside:
        return plane
    off = (rows[..., -1:] + columns[..., -1:]).expand(*plane.shape[:-1], -1)
    parts = [off.expand(*off.shape[:-1], ids.other.front), plane, off.expand(*off.shape[:-1], ids.other.back)]
    return torch.cat(parts, -1)


def bucket_sums_axes(weights: Tensor, ids: AxisIndex, buckets: int) -> tuple[Tensor, Tensor]:
    """Sums per row bucket and per column bucket: probabilities are summed over columns, then over rows, first.

    Args:
        weights: (B, H, Tq, Tk) probabilities.
        ids: of the queries against the keys' grid.
        buckets: K, the extra one included where there are tokens off the plane.

    Returns:
        Two of (B, H, Tq, K).
    """
    front, cells = ids.other.front, ids.other.rows * ids.other.columns
    plane = weights[..., front : front + cells].unflatten(-1, (ids.other.rows, ids.other.columns))
    sums = bucket_sums(plane.sum(-1), ids.rows, buckets), bucket_sums(plane.sum(-2), ids.columns, buckets)
    if ids.other.outside:
        off = weights[..., :front].sum(-1) + weights[..., front + cells :].sum(-1)
        for part in sums:
            part[..., -1].add_(off)
    return sums
