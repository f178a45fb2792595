"""Precision, recall and F1 of the M best words of each picture, as a mean over pictures and from pooled counts.

Everything follows from ranks: of each true word, its index (from 0) in the prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Count = int | Literal["own"]
"""Number of predicted words: M, or as many as the picture truly has."""
Ranks = Sequence[Sequence[int]]


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean; 0 where both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def per_image(ranks: Ranks, count: Count) -> dict[str, float]:
    """Return means over the pictures that have a true word; F1 is the mean of the pictures' own F1.

    Args:
        ranks: for each picture, the rank of each of its true words.
    """
    rows = [pooled([picture], count) for picture in ranks if picture]
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]} if rows else {}


def pooled(ranks: Ranks, count: Count) -> dict[str, float]:
    """Return precision and recall of the counts of all pictures together, and their F1."""
    sizes = [(picture, len(picture) if count == "own" else count) for picture in ranks if picture]
    hits = sum(rank < size for picture, size in sizes for rank in picture)
    predicted, true = sum(size for _, size in sizes), sum(len(picture) for picture, _ in sizes)
    if not true:
        return {}
    precision, recall = hits / predicted, hits / true
    return {"precision": precision, "recall": recall, "f1": f1(precision, recall)}


def average_precision(scores: Sequence[float], truth: Sequence[bool]) -> float | None:
    """Return the mean of the precision at each true picture, pictures sorted by score; None where no picture is true.

    Ties are taken together, at the precision behind the last of them.
    """
    order = sorted(zip(scores, truth, strict=True), key=lambda pair: -pair[0])
    total, hits, waiting = 0.0, 0, 0
    for rank, (score, true) in enumerate(order, 1):
        hits += true
        waiting += true
        if rank == len(order) or order[rank][0] != score:
            total += waiting * hits / rank
            waiting = 0
    return total / hits if hits else None
