"""Resamples tables of relative positions by cubic splines over a geometric grid."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def resample(table: Tensor, size: tuple[int, int]) -> Tensor:
    """Resamples a table of relative positions (2h-1, 2w-1, C) for another grid: (*size, C).

    Near positions keep their spacing and far ones are stretched: old positions lie at sums of a geometric series that
    reaches as far as the new grid (BEiT's fine-tuning code). Between them runs a cubic spline (not-a-knot), per axis.
    """
    rows, columns = (torch.from_numpy(_axis(old, new)) for old, new in zip(table.shape[:2], size, strict=True))
    return torch.einsum("ri,ijc,sj->rsc", rows, table.double(), columns).to(table.dtype)


def _axis(old: int, new: int) -> Array:
    # (new, old): the share of each old position in each new one.
    if old == new:
        return np.eye(old)
    low, high = 1.01, 1.5
    while high - low > 1e-6:  # so that 0, +-1, +-(1 + q), +-(1 + q + q^2) ... span the new grid
        ratio = (low + high) / 2
        if sum(ratio**power for power in range(old // 2)) > new // 2:
            high = ratio
        else:
            low = ratio
    steps = np.cumsum([ratio**power for power in range(old // 2)])
    source = np.concatenate([-steps[::-1], [0.0], steps])
    target = np.clip(np.arange(new, dtype=np.float64) - (new // 2), source[0], source[-1])
    if old < 4:  # straight lines
        return np.stack([np.interp(target, source, unit) for unit in np.eye(old)], 1)
    return _spline(source, target)


def _spline(source: Array, target: Array) -> Array:
    # (len(target), len(source)): the linear map of interpolation at ``target``.
    curvature = _curvature(source)
    cell = np.clip(np.searchsorted(source, target, side="right") - 1, 0, len(source) - 2)
    step = np.diff(source)[cell]
    right = (target - source[cell]) / step
    left = 1 - right
    unit = np.eye(len(source))
    straight = left[:, None] * unit[cell] + right[:, None] * unit[cell + 1]
    bent = (left**3 - left)[:, None] * curvature[cell] + (right**3 - right)[:, None] * curvature[cell + 1]
    return straight + (step**2 / 6)[:, None] * bent


def _curvature(source: Array) -> Array:
    # (n, n): second derivatives from the values, third derivatives continuous near the ends.
    count, steps = len(source), np.diff(source)
    system, values = np.zeros((count, count)), np.zeros((count, count))
    for i in range(1, count - 1):
        before, after = steps[i - 1], steps[i]
        system[i, i - 1 : i + 2] = before / 6, (before + after) / 3, after / 6
        values[i, i - 1 : i + 2] = 1 / before, -1 / before - 1 / after, 1 / after
    system[0, :3] = steps[1], -(steps[0] + steps[1]), steps[0]
    system[-1, -3:] = steps[-1], -(steps[-2] + steps[-1]), steps[-2]
    return np.linalg.solve(system, values).astype(np.float64, copy=False)
