"""Scores of classifiers: visual concepts, yes or no (POPE), NLVR2's consistency, and IoU of pixels.

Everything follows from ranks: of each true word, its index (from 0) in the prediction.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

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


def group_of(identifier: str) -> str:
    """Return the sentence an example asks about: ``split-set-pair-sentence`` without its third field, the pair."""
    parts = identifier.split("-")
    return "-".join(parts[:2] + parts[3:]) if len(parts) > 2 else identifier


def consistency(identifiers: Iterable[str], correct: Iterable[bool]) -> float:
    """Return the share of sentences that are judged rightly on every pair of pictures they come with."""
    groups: dict[str, bool] = {}
    for identifier, right in zip(identifiers, correct, strict=True):
        group = group_of(identifier)
        groups[group] = groups.get(group, True) and bool(right)
    return sum(groups.values()) / len(groups) if groups else 0.0


def accuracy(correct: Sequence[bool]) -> float:
    """Return the share of right ones; 0 of none."""
    return sum(map(bool, correct)) / len(correct) if correct else 0.0


def by_kind(rows: Iterable[Mapping[str, Any]], key: str, value: str = "correct") -> dict[str, float]:
    """Return the mean of ``value`` for each value of ``key``, sorted by it; rows without the key are left out."""
    groups: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.get(key) not in (None, ""):
            groups[str(row[key])].append(float(row[value]))
    return {kind: sum(groups[kind]) / len(groups[kind]) for kind in sorted(groups)}


WORDS = frozenset({"yes", "no"})


def yes_no(predictions: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """Return ``precision``, ``recall`` and ``f1`` of "yes", and ``yes_ratio``, the share of predictions that are "yes".

    A ratio whose denominator is 0 is 0.

    Args:
        labels: what is true, in the same order; nothing is returned where another word than yes and no occurs.
    """
    if not labels or not WORDS.issuperset(labels):
        return {}
    said = sum(word == "yes" for word in predictions)
    true = sum(word == "yes" for word in labels)
    both = sum(word == label == "yes" for word, label in zip(predictions, labels, strict=True))
    precision, recall = both / said if said else 0.0, both / true if true else 0.0
    f1 = 2 * both / (said + true) if said + true else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "yes_ratio": said / len(labels)}


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
