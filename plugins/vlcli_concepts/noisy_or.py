"""Computes noisy-OR over instances in log space, exact near 0 and 1, with finite gradients."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

TINY = -16.0
"""Below it, softplus(z) is exp(z) to float32's last digit."""
# Score of an instance that does not count: its probability is 0 in every float type.
ABSENT = -1e4


def log_noisy_or(scores: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return ``log p`` and ``log (1 - p)`` of ``p = 1 - prod_j (1 - sigmoid(z_j))``.

    With ``s = sum_j softplus(z_j)`` the second is ``-s``. The first is ``log(1 - exp(-s))``, computed from ``s`` where
    that is large, and from ``log s`` (a log-sum-exp, which does not underflow) where it is small.

    Args:
        scores: z, one per instance and word (..., J, W); computed in float32.
        mask: True at real instances (..., J).
    """
    z = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    if mask is not None:
        z = z.masked_fill(~mask[..., None], ABSENT)
    total = functional.softplus(z).sum(-2)  # (..., W)
    large = total > 0.5
    of_large = torch.log1p(-torch.exp(-torch.where(large, total, 1.0)))
    small = torch.where(large, 0.0, total)
    of_small = torch.logsumexp(_log_softplus(z), -2) + _log_share(small)
    return torch.where(large, of_large, of_small), -total


def _log_softplus(z: Tensor) -> Tensor:
    low = z < TINY
    return torch.where(low, z, functional.softplus(torch.where(low, 0.0, z)).log())


def _log_share(s: Tensor) -> Tensor:
    """Return ``log((1 - exp(-s)) / s)`` for s in [0, 0.5] by its series (error below 2e-9)."""
    square = s * s
    return s * (-1 / 2 + s * (1 / 24 + square * (-1 / 2880 + square / 181440)))


def noisy_or_loss(scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the cross-entropy (M, W) of the noisy-OR of scores (M, J, W) with 0/1 labels (M, W).

    Args:
        scores: one per instance and word.
        labels: 1 where a caption of the image has the word.
        mask: True at real instances (M, J).
    """
    present, absent = log_noisy_or(scores, mask)
    return -(labels * present + (1 - labels) * absent)
