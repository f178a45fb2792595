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
