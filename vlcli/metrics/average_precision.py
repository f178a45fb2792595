"""Average precision of a ranking, as of one class of a multi-label problem."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def average_precision(scores: Sequence[float], positive: Sequence[bool]) -> float:
    """Return the sum over thresholds of precision times the recall that each adds; equal scores share a threshold.

    A constant score has the share of positives, which is also what a random order has on average in large data.

    Args:
        scores: N, higher for what is more likely positive.

    Raises:
        ValueError: nothing is positive.

    >>> average_precision([0.9, 0.8, 0.7], [True, False, True])
    0.8333333333333333
    """
    order = np.argsort(-np.asarray(scores, np.float64), kind="stable")
    ranked, hits = np.asarray(scores, np.float64)[order], np.cumsum(np.asarray(positive, bool)[order])
    if not len(hits) or not hits[-1]:
        raise ValueError("average precision needs something positive")
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # the last place of each threshold
    gained = np.diff(hits[last], prepend=0) / hits[-1]
    return float((gained * hits[last] / (last + 1)).sum())
