"""Yes or no: precision, recall and F1 of "yes", and how often it is said (the metrics of POPE, Li et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence

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
