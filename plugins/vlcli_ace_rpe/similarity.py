"""Distances of patches and words: cosines by group of channels, shrunk softly."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class _Widened(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        ctx.kind = tensor.dtype
        return tensor.float()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        bound = torch.finfo(ctx.kind).max / 2
        return gradient.clamp(-bound, bound).to(ctx.kind)


def working(tensor: Tensor) -> Tensor:
    """In float32 at least: the shrinking is a cliff that half precision falls off."""
    if tensor.dtype not in (torch.float16, torch.bfloat16):
        return tensor
    widened: Tensor = _Widened.apply(tensor)
    return widened


def grouped_cosine(patches: Tensor, words: Tensor, groups: int) -> Tensor:
    """Eq. 3: the cosine of every group of neighbouring channels, each normalised by itself.

    Args:
        patches: (B, M, D).
        words: (B, N, D).
        groups: G, which divides D.

    Returns:
        (B, G, M, N), in float32 or float64.
    """
    device = patches.device.type
    with torch.autocast("cpu" if device == "meta" else device, enabled=False):
        left, right = (
            F.normalize(working(x).unflatten(-1, (groups, -1)), dim=-1, eps=1e-6).transpose(1, 2)
            for x in (patches, words)
        )
        return left @ right.transpose(-1, -2)


def log_distance(similarity: Tensor, threshold: float, sharpness: float) -> Tensor:
    """Eq. 4 and 6 as a logarithm: -log S from ``threshold`` on, below it -log(threshold) + sharpness (threshold - S).

    The soft shrinking itself, threshold * exp(sharpness (S - threshold)), leaves every floating-point range within a
    hundredth of the threshold; its logarithm is a straight line.
    """
    inside = -similarity.clamp(min=threshold).log()
    below = sharpness * (threshold - similarity).clamp(min=0)
    return inside + below


def distance(similarity: Tensor, threshold: float, sharpness: float, farthest: float) -> Tensor:
    """Eq. 6: 1 / shrunk similarity, at most ``farthest``; from there on no gradient flows.

    Args:
        similarity: any shape, in [-1, 1].
        threshold: delta: from here on a pair is an anchor.
        sharpness: tau of the shrinking.
        farthest: the cap; a pair this far apart counts as not related.
    """
    return log_distance(working(similarity), threshold, sharpness).clamp(max=math.log(farthest)).exp()
