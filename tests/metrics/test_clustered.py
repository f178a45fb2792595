"""Intervals over examples that share images: properties, peers, and how often they hold the truth."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vlcli.metrics.clustered import difference_interval, score_interval
from vlcli.metrics.interval import Interval

ANSWERS = st.lists(st.tuples(st.sampled_from([0.0, 0.3, 0.6, 1.0]), st.integers(0, 9)), min_size=1, max_size=60)


def _ends(found: Interval) -> tuple[float, float]:
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


@settings(max_examples=60, deadline=None)
@given(ANSWERS)
def test_the_interval_of_a_score_holds_the_score_within_0_and_1(answers: list[tuple[float, int]]) -> None:
    values = {str(n): value for n, (value, _) in enumerate(answers)}
    found = score_interval(values, {str(n): f"picture {image}" for n, (_, image) in enumerate(answers)})
    low, high = _ends(found)
    assert 0 <= low <= found.mean <= high <= 1
    assert low < high
    assert found.mean == pytest.approx(math.fsum(values.values()) / len(values))
    assert found.count == len({image for _, image in answers})


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from([0.8, 0.95, 0.99]))
def test_where_no_two_answers_share_a_picture_it_is_wilsons(right: int, wrong: int, level: float) -> None:
    if right + wrong < 2:
        return
    values = {str(n): float(n < right) for n in range(right + wrong)}
    peer = stats.binomtest(right, right + wrong).proportion_ci(level, "wilson")
    for clusters in (None, {key: f"picture of {key}" for key in values}):
        low, high = _ends(score_interval(values, clusters, level))
        assert (low, high) == (pytest.approx(peer.low, abs=1e-9), pytest.approx(peer.high, abs=1e-9))


def test_of_12_answers_about_3_pictures_it_is_the_one_computed_by_hand() -> None:
    """Pictures with 4, 3 and 1 right answers of 4: variance of their sums, effective answers, Wilson."""
    values = {f"{image}{n}": float(n < right) for image, right in enumerate((4, 3, 1)) for n in range(4)}
    low, high = _ends(score_interval(values, {key: key[0] for key in values}))
    size, total = 4, 12 + 2 * 4 / 16
    mean = (8 + 4 / 16) / total
    sums = sum((right - size * mean) ** 2 for right in (4, 3, 1)) + size**2 / 16 * ((1 - mean) ** 2 + mean**2)
    independent = mean * (1 - mean) / total
    count = 12 * independent / (sums / total**2) * (stats.t.ppf(0.975, 11) / stats.t.ppf(0.975, 2)) ** 2
    z = stats.norm.ppf(0.975)
    centre, half = 8 / 12 + z**2 / (2 * count), z * math.sqrt(8 / 12 * 4 / 12 / count + z**2 / (4 * count**2))
    assert low == pytest.approx((centre - half) / (1 + z**2 / count))
    assert high == pytest.approx((centre + half) / (1 + z**2 / count))


@pytest.mark.parametrize("right", [0.5, 0.9])
def test_it_is_wider_where_answers_about_one_picture_agree_more(right: float) -> None:
    rng, widths = np.random.default_rng(2), []
    base = rng.random((60, 5)) < right
    for agreeing in (0, 2, 3, 5):  # of five answers about a picture, so many are the first one
        answers = base.copy()
        answers[:, :agreeing] = base[:, :1]
        values = {f"{n}": float(x) for n, x in enumerate(answers.ravel())}
        found = score_interval(values, {key: str(int(key) // 5) for key in values})
        widths.append((found.half or 0) / math.sqrt(found.mean * (1 - found.mean)))
    assert widths == sorted(widths)
    assert widths[-1] > 1.7 * widths[0]


@pytest.mark.parametrize("all_of_them", [0.0, 1.0])
def test_a_score_of_0_or_1_has_an_interval_by_its_pictures(all_of_them: float) -> None:
    few, many = (
        score_interval(
            {str(n): all_of_them for n in range(60)}, {str(n): str(n // (60 // pictures)) for n in range(60)}
        )
        for pictures in (6, 60)
    )
    wilson = stats.binomtest(int(60 * all_of_them), 60).proportion_ci(0.95, "wilson")
    assert _ends(many) == (pytest.approx(wilson.low, abs=1e-9), pytest.approx(wilson.high, abs=1e-9))
    assert (few.half or 0) > 2 * (many.half or 0)


def test_many_pictures_have_the_interval_of_a_bootstrap_over_pictures() -> None:
    rng = np.random.default_rng(3)
    rate = rng.beta(2, 3, 400)
    answers = (rng.random((400, 4)) < rate[:, None]).astype(float)
    values = {str(n): float(x) for n, x in enumerate(answers.ravel())}
    low, high = _ends(score_interval(values, {key: str(int(key) // 4) for key in values}))
    peer = stats.bootstrap((answers.mean(1),), np.mean, n_resamples=4000, rng=np.random.default_rng(0))
    ends = peer.confidence_interval
    assert (low, high) == (pytest.approx(ends.low, abs=0.004), pytest.approx(ends.high, abs=0.004))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([-1.0, -0.3, 0.0, 0.6, 1.0]), st.integers(0, 9)), min_size=2, max_size=60))
def test_the_interval_of_a_difference_holds_the_difference(answers: list[tuple[float, int]]) -> None:
    values = {str(n): value for n, (value, _) in enumerate(answers)}
    clusters = {str(n): f"picture {image}" for n, (_, image) in enumerate(answers)}
    found = difference_interval([values], clusters)
    if len({image for _, image in answers}) < 2:
        assert found.low is None
        return
    low, high = _ends(found)
    assert low <= found.mean <= high
    turned = difference_interval([{key: -value for key, value in values.items()}], clusters)
    assert _ends(turned) == (pytest.approx(-high), pytest.approx(-low))
    assert found.p is not None
    assert 0 <= found.p <= 1


def test_two_models_that_agree_on_every_answer_differ_by_0_and_little() -> None:
    found = difference_interval([{str(n): 0.0 for n in range(100)}])
    assert (found.mean, found.p) == (0.0, 1.0)
    assert 0 < (found.half or 0) < 0.02


def test_numbers_outside_0_and_1_have_students_interval() -> None:
    values = {str(n): float(n % 7) for n in range(40)}
    found = score_interval(values)
    peer = stats.ttest_1samp(list(values.values()), 0).confidence_interval()
    assert _ends(found) == (pytest.approx(peer.low), pytest.approx(peer.high))
    assert score_interval({str(n): 3.0 for n in range(40)}).low is None


@pytest.fixture(scope="module")
def coverage() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "coverage.py"
    spec = importlib.util.spec_from_file_location("coverage_of_intervals", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("pictures", "score"), [(30, 0.5), (30, 0.9), (100, 0.98)])
def test_intervals_hold_the_truth_as_often_as_they_say(coverage: ModuleType, pictures: int, score: float) -> None:
    """With 800 repetitions the share has a standard error of .008."""
    rng = np.random.default_rng(11)
    samples = (coverage.scores(rng, pictures, 5, score, 0.3) for _ in range(800))
    found = coverage.cover(samples, score, paired=False)
    assert 0.93 <= found.clustered[0] <= 0.985
    assert found.independent[0] < 0.93


def test_differences_hold_the_truth_as_often_as_they_say(coverage: ModuleType) -> None:
    rng = np.random.default_rng(12)
    samples = (coverage.differences(rng, 100, 5, (0.9, 0.93), 0.4, 0.5) for _ in range(800))
    assert 0.93 <= coverage.cover(samples, 0.03, paired=True).clustered[0] <= 0.985
