"""Retrieval: recall at k and median rank with several right answers a query; ties are counted fairly.

Equal scores have no order. Counting a tie as won lets a constant model look perfect, counting it as lost hides what
rounding did; here the expectation over all orders of the tied candidates is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.floating]


@dataclass(frozen=True)
class Standing:
    """Where the best right candidate of each query stands.

    Attributes:
        above: (Q,) wrong candidates that score strictly higher.
        tied: (Q,) wrong candidates that score the same.
        right: (Q,) right candidates at that score.
        total: candidates a query.
    """

    above: NDArray[np.int64]
    tied: NDArray[np.int64]
    right: NDArray[np.int64]
    total: int


def standing(scores: Scores, relevant: NDArray[np.bool_]) -> Standing:
    """From ``scores`` (Q, C), higher is better, and ``relevant`` (Q, C); every query needs a relevant candidate.

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


def expected_rank(place: Standing) -> NDArray[np.float64]:
    """(Q,) rank, from 1, of the first right candidate, on average over the orders of ties."""
    return place.above + (place.tied + place.right + 1) / (place.right + 1)


def hit_chance(place: Standing, k: int) -> NDArray[np.float64]:
    """(Q,) chance that a right candidate is among the first ``k``."""
    rows = zip(place.above.tolist(), place.tied.tolist(), place.right.tolist(), strict=True)
    return np.array([_chance(min(k, place.total) - above, tied, right) for above, tied, right in rows])


def _chance(slots: int, tied: int, right: int) -> float:
    if slots <= 0:
        return 0.0
    if slots > tied:
        return 1.0
    return 1.0 - math.comb(tied, slots) / math.comb(tied + right, slots)


def recall(scores: Scores, relevant: NDArray[np.bool_], ks: tuple[int, ...] = (1, 5, 10)) -> dict[str, float]:
    """``r@k`` for each k and ``median_rank``, over the queries of ``scores`` (Q, C)."""
    return recall_of(standing(scores, relevant), ks)


def recall_of(place: Standing, ks: tuple[int, ...] = (1, 5, 10)) -> dict[str, float]:
    """``r@k`` for each k and ``median_rank``, over queries whose standing is known."""
    found = {f"r@{k}": float(hit_chance(place, k).mean()) for k in ks}
    return {**found, "median_rank": float(np.median(expected_rank(place)))}


def joined(places: Sequence[Standing]) -> Standing:
    """The standings of several runs of queries among the same candidates, one after another."""
    return Standing(
        above=np.concatenate([place.above for place in places]),
        tied=np.concatenate([place.tied for place in places]),
        right=np.concatenate([place.right for place in places]),
        total=places[0].total,
    )


def both_ways(scores: Scores, relevant: NDArray[np.bool_], ks: tuple[int, ...] = (1, 5, 10)) -> dict[str, float]:
    """Recalls of image retrieval (a text asks: ``image/...``) and text retrieval (an image asks: ``text/...``).

    Args:
        scores: (N, M) of N texts with M images.
        relevant: (N, M) which belong together.
        ks: how far down the list to look.
    """
    image = {f"image/{name}": value for name, value in recall(scores, relevant, ks).items()}
    text = {f"text/{name}": value for name, value in recall(scores.T, relevant.T, ks).items()}
    hits = [value for name, value in {**image, **text}.items() if "r@" in name]
    return {**image, **text, "r_mean": sum(hits) / len(hits)}
