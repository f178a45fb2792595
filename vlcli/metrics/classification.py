"""Scores of classifiers: visual concepts, yes or no (POPE), NLVR2's consistency, and IoU of pixels.

Everything follows from ranks: of each true word, its index (from 0) in the prediction.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
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
    pairs = list(zip(map(group_of, identifiers), correct, strict=True))
    groups, wrong = {group for group, _ in pairs}, {group for group, right in pairs if not right}
    return len(groups - wrong) / max(1, len(groups))


def by_kind(rows: Iterable[Mapping[str, Any]], key: str, value: str = "correct", prefix: str = "") -> dict[str, float]:
    """Return ``prefix`` + each value of ``key`` -> the mean of ``value``, sorted; rows without the key are left out."""
    groups: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.get(key) not in (None, ""):
            groups[str(row[key])].append(float(row[value]))
    return {prefix + kind: fmean(groups[kind]) for kind in sorted(groups)}


WORDS = frozenset({"yes", "no"})


def yes_no(predictions: Sequence[str], labels: Sequence[str]) -> dict[str, float]:
    """Return ``precision``, ``recall`` and ``f1`` of "yes", and ``yes_ratio``, the share of predictions that are "yes".

    A ratio whose denominator is 0 is 0. Nothing is returned where a label is neither yes nor no.
    """
    if not labels or not WORDS.issuperset(labels):
        return {}
    said, true = predictions.count("yes"), labels.count("yes")
    both = sum(word == label == "yes" for word, label in zip(predictions, labels, strict=True))
    return {**_rates(both, said, true), "yes_ratio": said / len(labels)}


def _rates(both: int, said: int, true: int) -> dict[str, float]:
    precision, recall = both / max(said, 1), both / max(true, 1)
    return {"precision": precision, "recall": recall, "f1": f1(precision, recall)}


Count = int | Literal["own"]  # number of predicted words: M, or as many as the picture truly has
Ranks = Sequence[Sequence[int]]


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean; 0 where both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def per_image(ranks: Ranks, count: Count) -> dict[str, float]:
    """Return the mean precision, recall and F1 of pictures by the ``ranks`` of their true words; none: left out."""
    rows = [pooled([picture], count) for picture in ranks if picture]
    return {name: fmean(row[name] for row in rows) for name in rows[0]} if rows else {}


def pooled(ranks: Ranks, count: Count) -> dict[str, float]:
    """Return precision and recall of the counts of all pictures together, and their F1."""
    sizes = [(picture, len(picture) if count == "own" else count) for picture in ranks if picture]
    hits = sum(rank < size for picture, size in sizes for rank in picture)
    predicted, true = sum(size for _, size in sizes), sum(len(picture) for picture, _ in sizes)
    return _rates(hits, predicted, true) if true else {}
