"""Semantic segmentation: intersection over union by class, from one table of what pixels are and were taken for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.int64]


def confusion(truth: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> Table:
    """Return pixels by true class (rows) and predicted class (columns) (classes, classes), negative truths left out.

    >>> confusion(np.array([0, 0, 1, -1]), np.array([0, 1, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    real = truth >= 0
    pairs = truth[real] * classes + predicted[real]
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def union_scores(table: Table, names: Sequence[str] = ()) -> dict[str, float]:
    """Return ``miou``, ``macc`` (mean recall of the classes) and ``aacc`` (of all pixels), with ``iou/NAME``.

    Classes that are neither there nor predicted count in no mean (as in the field's tools).
    """
    right, true, taken = np.diag(table).astype(float), table.sum(1), table.sum(0)
    union = true + taken - right
    seen, there = union > 0, true > 0
    means = {
        "miou": float((right[seen] / union[seen]).mean()) if seen.any() else 0.0,
        "macc": float((right[there] / true[there]).mean()) if there.any() else 0.0,
        "aacc": float(right.sum() / max(1, table.sum())),
    }
    return means | {f"iou/{name}": float(right[i] / union[i]) for i, name in enumerate(names) if seen[i]}
