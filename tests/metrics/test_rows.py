"""Intervals of metrics from rows of predictions: right, narrow enough, and given only where they are of the metric."""

from __future__ import annotations

import pytest
from run_folders import accuracies, answers

from vlcli.metrics.rows import column, measured, paired


def test_wilson_known_value() -> None:
    """8 of 10: the interval of Wilson (1927), as in Brown, Cai and DasGupta (2001)."""
    rows = answers(10, 8)
    (row,) = (one for one in measured(accuracies(rows), rows) if one.name == "accuracy")
    assert (row.low, row.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))


def test_rows_that_share_an_image_are_counted_by_image() -> None:
    rows = answers(40, 31)
    clusters = {str(row["key"]): f"picture {n // 4}" for n, row in enumerate(rows)}
    alone, together = measured(accuracies(rows), rows)[0], measured(accuracies(rows), rows, clusters)[0]
    assert (alone.count, alone.images, together.count, together.images) == (40, 0, 40, 10)
    assert together.low is not None
    assert alone.low is not None
    assert together.low < alone.low


def test_measured_kinds() -> None:
    """Every accuracy by kind gets the interval of its own rows; a metric of no field gets none."""
    rows = answers(40, 31)
    found = {row.name: row for row in measured({**accuracies(rows), "consistency": 0.5}, rows)}
    assert found["accuracy"].count == 40
    assert found["accuracy/count"].count == 20
    assert found["accuracy"].low is not None
    assert found["accuracy"].low < 31 / 40 < (found["accuracy"].high or 0)
    assert found["accuracy"].baseline == 1.0
    assert found["accuracy"].by == "most frequent"
    assert found["consistency"].low is None
    assert "most_frequent" not in found


def test_a_kind_that_is_a_number() -> None:
    rows = [{"key": str(n), "accuracy": float(n % 2), "question_type": 3} for n in range(10)]
    assert measured({"accuracy/3": 0.5}, rows)[0].count == 10


def test_no_interval_of_another_number() -> None:
    """Rows whose mean is another number than the metric belong to other data: no interval."""
    rows = answers(40, 31)
    assert column("accuracy", 0.5, rows) is None
    assert measured({"accuracy": 0.5}, rows)[0].count == 0


def test_ranks() -> None:
    """Recall at k is the mean of rank <= k over the rows of its side."""
    rows = [{"key": f"image/{n}", "rank": n + 1.0} for n in range(10)] + [{"key": "text/1", "rank": 1.0}]
    values = column("image/r@5", 0.5, rows)
    assert values is not None
    assert len(values) == 10


def test_paired_difference() -> None:
    """Ten more right of a hundred: the interval excludes 0, and is narrower than that of unpaired samples."""
    one, two = answers(100, 60), answers(100, 70)
    found = next(row for row in paired(accuracies(one), accuracies(two), one, two) if row.name == "accuracy")
    assert found.difference == pytest.approx(0.1)
    assert found.count == 100
    assert found.low is not None
    assert found.high is not None
    assert 0.04 <= found.low < 0.1 < found.high <= 0.18, "unpaired, it would end beyond .23"


def test_other_keys_do_not_pair() -> None:
    """Predictions of other examples give a difference without an interval."""
    one, two = answers(20, 10), answers(20, 15, start=100)
    found = paired(accuracies(one), accuracies(two), one, two)[0]
    assert found.low is None
    assert found.difference == pytest.approx(0.25)
