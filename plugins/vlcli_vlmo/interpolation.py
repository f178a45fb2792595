"""Tables of relative places at another resolution: cubic splines over a geometric grid."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def resample(table: Tensor, size: tuple[int, int]) -> Tensor:
    """A table of relative places (2h-1, 2w-1, C) for another grid: (*size, C).

    Near places keep their spacing and far ones are stretched: old places lie at sums of a geometric series that reaches
    as far as the new grid (BEiT's fine-tuning code). Between them runs a cubic spline (not-a-knot), per axis.
    """
    rows, columns = (torch.from_numpy(_axis(old, new)) for old, new in zip(table.shape[:2], size, strict=True))
    made = torch.einsum("ri,ijc,sj->rsc", rows, table.double(), columns)
    return made.to(table.dtype)


def _axis(old: int, new: int) -> Array:
    if old == new:
        return np.eye(old)
    source = _geometric(old, new)
    target = np.arange(new, dtype=np.float64) - (new // 2)
    return _spline(source, np.clip(target, source[0], source[-1]))


def _geometric(old: int, new: int) -> Array:
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        ratio = (low + high) / 2
        if sum(ratio**power for power in range(old // 2)) > new // 2:
            high = ratio
        else:
            low = ratio
    steps = np.cumsum([ratio**power for power in range(old // 2)])
    return np.concatenate([-steps[::-1], [0.0], steps])


def _spline(source: Array, target: Array) -> Array:
    count = len(source)
    if count < 4:
        return np.stack([np.interp(target, source, unit) for unit in np.eye(count)], 1)
    curvature = _curvature(source)
    place = np.clip(np.searchsorted(source, target, side="right") - 1, 0, count - 2)
    step = np.diff(source)[place]
    right = (target - source[place]) / step
    left = 1 - right
    unit = np.eye(count)
    bend = (step**2 / 6)[:, None]
    straight = left[:, None] * unit[place] + right[:, None] * unit[place + 1]
    bent = (left**3 - left)[:, None] * curvature[place] + (right**3 - right)[:, None] * curvature[place + 1]
    return straight + bend * bent


def _curvature(source: Array) -> Array:
    count, steps = len(source), np.diff(source)
    system, given = np.zeros((count, count)), np.zeros((count, count))
    for i in range(1, count - 1):
        before, after = steps[i - 1], steps[i]
        system[i, i - 1 : i + 2] = before / 6, (before + after) / 3, after / 6
        given[i, i - 1 : i + 2] = 1 / before, -1 / before - 1 / after, 1 / after
    system[0, :3] = steps[1], -(steps[0] + steps[1]), steps[0]
    system[-1, -3:] = steps[-1], -(steps[-2] + steps[-1]), steps[-2]
    return np.linalg.solve(system, given).astype(np.float64, copy=False)
