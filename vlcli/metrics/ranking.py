"""Retrieval: recall at k and median rank with several right answers a query; ties are counted fairly.

Equal scores have no order. Counting a tie as won lets a constant model look perfect, counting it as lost hides what
rounding did; here the expectation over all orders of the tied candidates is taken.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def average_precision(scores: Sequence[float], positive: Sequence[bool]) -> float:
    """Return the sum over thresholds of precision times the recall that each adds; equal scores share a threshold.

    A constant score has the share of positives, which is also what a random order has on average in large data.

    Raises:
        ValueError: nothing is positive, or a score is NaN.

    >>> average_precision([0.9, 0.8, 0.7], [True, False, True])
    0.8333333333333333
    """
    if np.isnan(scores).any():
        raise ValueError("average precision needs scores that are numbers")
    order = np.argsort(-np.asarray(scores, np.float64), kind="stable")
    ranked, hits = np.asarray(scores, np.float64)[order], np.cumsum(np.asarray(positive, bool)[order])
    if not len(hits) or not hits[-1]:
        raise ValueError("average precision needs at least one positive example")
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # the last place of each threshold
    gained = np.diff(hits[last], prepend=0) / hits[-1]
    return float((gained * hits[last] / (last + 1)).sum())


Scores = NDArray[np.floating]


@dataclass(frozen=True)
class Standing:
    """Rank of the best right candidate of each query, with ties.

    Attributes:
        above: (Q,) wrong candidates with a higher score.
        tied: (Q,) wrong candidates with the same score.
        right: (Q,) right candidates with that score.
        total: candidates of a query.
    """

    above: NDArray[np.int64]
    tied: NDArray[np.int64]
    right: NDArray[np.int64]
    total: int


def standing(scores: Scores, relevant: NDArray[np.bool_]) -> Standing:
    """Return the standing of each query by scores (Q, C), higher is better, of which some are ``relevant`` (Q, C).

    Raises:
        ValueError: a query has no relevant candidate, or a score is NaN.
    """
    if not relevant.any(axis=1).all():
        raise ValueError(f"query {int(np.argmin(relevant.any(axis=1)))} has no relevant candidate")
    if np.isnan(scores).any():
        raise ValueError(f"query {int(np.argmax(np.isnan(scores).any(axis=1)))} has a score that is not a number")
    best = np.where(relevant, scores, -np.inf).max(axis=1, keepdims=True)  # (Q, 1)
    equal = scores == best
    return Standing(
        above=((scores > best) & ~relevant).sum(axis=1),
        tied=(equal & ~relevant).sum(axis=1),
        right=(equal & relevant).sum(axis=1),
        total=scores.shape[1],
    )


def expected_rank(queries: Standing) -> NDArray[np.float64]:
    """Return the rank (Q,), from 1, of the first right candidate, on average over the orders of ties."""
    return queries.above + (queries.tied + queries.right + 1) / (queries.right + 1)


def hit_chance(queries: Standing, k: int) -> NDArray[np.float64]:
    """Return the chance (Q,) that a right candidate is among the first ``k``."""
    slots = np.clip(min(k, queries.total) - queries.above, 0, queries.tied + 1)  # one more than the wrong ones: sure
    rows = zip(slots.tolist(), queries.tied.tolist(), queries.right.tolist(), strict=True)
    return np.array([1.0 - math.comb(tied, free) / math.comb(tied + right, free) for free, tied, right in rows])


def joined(parts: Sequence[Standing]) -> Standing:
    """Join the standings of several runs of queries among the same candidates, one after another."""
    above, tied, right = (np.concatenate([getattr(p, name) for p in parts]) for name in ("above", "tied", "right"))
    return Standing(above, tied, right, parts[0].total)


def both_ways(scores: Scores, relevant: NDArray[np.bool_], ks: tuple[int, ...] = (1, 5, 10)) -> dict[str, float]:
    """Return :func:`recalls` of the scores (N, M) of N texts with M images, of which some are ``relevant`` (N, M)."""
    return recalls((standing(scores, relevant), standing(scores.T, relevant.T)), ks)


def recalls(both: Iterable[Standing], ks: tuple[int, ...]) -> dict[str, float]:
    """Return ``r@k``, their mean ``r_mean`` (mean TR and mean IR of papers) and ``median_rank`` of both ways.

    ``image/...`` are those of image retrieval (a text asks), ``text/...`` those of text retrieval.
    """
    metrics: dict[str, float] = {}
    for side, queries in zip(("image", "text"), both, strict=True):
        hits = {f"{side}/r@{k}": float(hit_chance(queries, k).mean()) for k in ks}
        rank = float(np.median(expected_rank(queries)))
        metrics |= {**hits, f"{side}/r_mean": sum(hits.values()) / len(hits), f"{side}/median_rank": rank}
    hits = {name: value for name, value in metrics.items() if "r@" in name}
    return {**metrics, "r_mean": sum(hits.values()) / len(hits)}
