"""Precision, recall and F1 of the M best words, from ranks."""

from __future__ import annotations

import numpy as np
import pytest

from vlcli.metrics.classification import f1, per_image, pooled
from vlcli.metrics.ranking import average_precision

RANKS = [[0, 1, 5], [3], []]
"""A picture with three true words, found 1st, 2nd and 6th; one whose only word is 4th; one without a true word."""


def test_means_over_pictures():
    assert per_image(RANKS, 2) == pytest.approx({"precision": 0.5, "recall": 1 / 3, "f1": 0.4})
    assert per_image(RANKS, 4) == pytest.approx({"precision": 0.375, "recall": 5 / 6, "f1": (4 / 7 + 0.4) / 2})
    assert per_image(RANKS, "own") == pytest.approx({"precision": 1 / 3, "recall": 1 / 3, "f1": 1 / 3})


def test_pooled_counts():
    assert pooled(RANKS, 2) == pytest.approx({"precision": 0.5, "recall": 0.5, "f1": 0.5})
    assert pooled(RANKS, 4) == pytest.approx({"precision": 3 / 8, "recall": 3 / 4, "f1": 0.5})
    assert pooled(RANKS, "own") == pytest.approx({"precision": 0.5, "recall": 0.5, "f1": 0.5})


def test_nothing_true_gives_nothing():
    assert per_image([[]], 3) == pooled([], 3) == {}
    assert f1(0.0, 0.0) == 0.0


def test_published_f1_are_not_those_of_the_published_precision_and_recall():
    """DiMBERT, Table 8: M, precision, recall, F1 as printed."""
    printed = {10: (72.6, 29.8, 44.3), 20: (52.9, 45.1, 49.5), 30: (42.2, 54.2, 47.4), 40: (35.1, 59.9, 43.8)}
    own = {count: f1(p, r) for count, (p, r, _) in printed.items()}
    assert own == pytest.approx({10: 42.3, 20: 48.7, 30: 47.5, 40: 44.3}, abs=0.05)
    assert all(abs(own[count] - row[2]) > 0.05 for count, row in printed.items())


def test_average_precision_by_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores, truth = rng.integers(0, 5, 12) / 4, rng.random(12) < 0.4
        total, last = 0.0, 0.0  # the area under the steps of precision over recall, one step a threshold
        for limit in sorted(set(scores.tolist()), reverse=True):
            chosen = scores >= limit
            recall = truth[chosen].sum() / max(truth.sum(), 1)
            total += (recall - last) * truth[chosen].mean()
            last = recall
        if truth.any():
            assert average_precision(scores.tolist(), truth.tolist()) == pytest.approx(total)
        else:
            with pytest.raises(ValueError, match="at least one positive"):
                average_precision(scores.tolist(), truth.tolist())
