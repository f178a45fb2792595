"""Mean intersection over union against sets of pixels."""

from __future__ import annotations

import numpy as np
import pytest

from vlcli.metrics.classification import confusion, union_scores


def by_sets(truth: np.ndarray, found: np.ndarray, classes: int) -> dict[str, float]:
    """The definition, pixel by pixel, over all pictures together."""
    real = [(t, f) for t, f in zip(truth.ravel().tolist(), found.ravel().tolist(), strict=True) if t >= 0]
    ious, recalls = [], []
    for number in range(classes):
        true = {place for place, (t, _) in enumerate(real) if t == number}
        taken = {place for place, (_, f) in enumerate(real) if f == number}
        ious += [len(true & taken) / len(true | taken)] if true | taken else []
        recalls += [len(true & taken) / len(true)] if true else []
    right = sum(t == f for t, f in real) / len(real)
    return {"miou": sum(ious) / len(ious), "macc": sum(recalls) / len(recalls), "aacc": right}


@pytest.mark.parametrize("seed", range(4))
def test_against_sets(seed):
    rng = np.random.default_rng(seed)
    classes = 6
    truth, found = rng.integers(-1, 4, (3, 9, 7)), rng.integers(0, 5, (3, 9, 7))  # class 5 is nowhere, 4 only found
    table = sum(confusion(t, f, classes) for t, f in zip(truth, found, strict=True))
    scores = union_scores(table, [f"c{i}" for i in range(classes)])
    for name, value in by_sets(truth, found, classes).items():
        assert scores[name] == pytest.approx(value)
    assert "iou/c5" not in scores
    assert scores["iou/c4"] == 0.0


def test_perfect_and_empty():
    truth = np.array([[0, 1], [2, -1]])
    assert union_scores(confusion(truth, np.abs(truth), 3))["miou"] == 1.0
    assert union_scores(np.zeros((3, 3), np.int64))["miou"] == 0.0
