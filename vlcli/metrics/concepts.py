"""Precision, recall and F1 of the M best words of each picture, as a mean over pictures and from pooled counts.

Everything follows from ranks: of each true word, at which place (from 0) the prediction has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Count = int | Literal["own"]
"""How many words are predicted: M, or as many as the picture truly has."""
Ranks = Sequence[Sequence[int]]


def f1(precision: float, recall: float) -> float:
    """The harmonic mean; 0 where both are."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def per_image(ranks: Ranks, count: Count) -> dict[str, float]:
    """Means over the pictures that have a true word; F1 is the mean of the pictures' own F1.

    Args:
        ranks: for each picture, the place of each of its true words.
        count: M.
    """
    rows = [_of_picture(found, count) for found in ranks if found]
    names = ("precision", "recall", "f1")
    return {name: sum(row[place] for row in rows) / len(rows) for place, name in enumerate(names)} if rows else {}


def pooled(ranks: Ranks, count: Count) -> dict[str, float]:
    """From the counts of all pictures together; F1 is that of this precision and recall."""
    kept = [found for found in ranks if found]
    hits = sum(sum(rank < _size(found, count) for rank in found) for found in kept)
    given, true = sum(_size(found, count) for found in kept), sum(map(len, kept))
    if not true:
        return {}
    precision, recall = hits / given, hits / true
    return {"precision": precision, "recall": recall, "f1": f1(precision, recall)}


def _size(found: Sequence[int], count: Count) -> int:
    return len(found) if count == "own" else count


def _of_picture(found: Sequence[int], count: Count) -> tuple[float, float, float]:
    size = _size(found, count)
    hits = sum(rank < size for rank in found)
    precision, recall = hits / size, hits / len(found)
    return precision, recall, f1(precision, recall)


def average_precision(scores: Sequence[float], truth: Sequence[bool]) -> float | None:
    """Mean of the precision at each true picture, pictures sorted by score; None where no picture is true.

    Ties are taken together, at the precision behind the last of them.
    """
    order = sorted(zip(scores, truth, strict=True), key=lambda pair: -pair[0])
    total, hits, waiting = 0.0, 0, 0
    for place, (score, true) in enumerate(order, 1):
        hits += true
        waiting += true
        if place == len(order) or order[place][0] != score:
            total += waiting * hits / place
            waiting = 0
    return total / hits if hits else None
