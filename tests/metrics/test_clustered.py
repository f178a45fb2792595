"""Intervals over examples that share images: properties, peers, and how often they hold the truth."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from random import Random
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from vlcli.metrics.clustered import Groups, difference_interval, score_ends, score_interval
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
    size, total = 4, 12 + 2 * 4 / 8
    mean = (8 + 4 / 8) / total
    sums = sum((right - size * mean) ** 2 for right in (4, 3, 1)) + size**2 / 8 * ((1 - mean) ** 2 + mean**2)
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


@pytest.mark.parametrize("each", [5, 0], ids=["five answers a picture", "one to thirty"])
@pytest.mark.parametrize(("pictures", "score"), [(30, 0.5), (30, 0.9), (100, 0.02)])
def test_intervals_hold_the_truth_as_often_as_they_say(
    coverage: ModuleType, pictures: int, score: float, each: int
) -> None:
    """With 800 repetitions the share has a standard error of .008."""
    sizes = coverage.sizes_of(pictures, each)
    held, independent = coverage.cover_score(np.random.default_rng(11), 800, sizes, score, 0.5)
    assert 0.93 <= held <= 0.985
    assert independent < 0.9


@pytest.mark.parametrize("pictures", [100, 300])
def test_differences_hold_the_truth_as_often_as_they_say(coverage: ModuleType, pictures: int) -> None:
    sizes, rng = coverage.sizes_of(pictures, 5), np.random.default_rng(12)
    held, independent, _ = coverage.cover_difference(rng, 800, sizes, (0.9, 0.93), 0.7, 0.5)
    assert 0.93 <= held <= 0.98
    assert independent < 0.9
    held, independent, _ = coverage.cover_difference(rng, 800, coverage.sizes_of(100, 1), (0.98, 0.96), 0.0, 0.95)
    assert held >= 0.94, "no difference is seen in one of seven samples; the truth is .02"
    assert independent < 0.9


def test_models_that_are_no_better_are_called_so_in_5_percent(coverage: ModuleType) -> None:
    sizes, rng = coverage.sizes_of(300, 5), np.random.default_rng(13)
    assert 0.025 <= coverage.cover_difference(rng, 800, sizes, (0.5, 0.5), 0.3, 0.7)[2] <= 0.07
    assert coverage.cover_difference(rng, 800, sizes, (0.98, 0.98), 0.3, 0.95)[2] <= 0.06
    assert coverage.holm_errors(rng, 100, sizes, 0.5, 0.3) <= 0.1


@pytest.mark.parametrize("seeds", [3, 10])
def test_intervals_of_seeds_hold_the_truth_and_equivalence_errs_in_less_than_5_percent(
    coverage: ModuleType, seeds: int
) -> None:
    mean, difference, equal = coverage.over_seeds(np.random.default_rng(14), 600, seeds, 0.9, 0.02)
    assert 0.925 <= mean <= 0.975
    assert 0.925 <= difference <= 0.975
    assert equal <= 0.05


BATCHES = st.integers(1, 4).flatmap(
    lambda rows: st.lists(
        st.tuples(st.lists(st.sampled_from([0.0, 0.3, 0.6, 1.0]), min_size=rows, max_size=rows), st.integers(0, 5)),
        min_size=2,
        max_size=30,
    )
)


@settings(max_examples=60, deadline=None)
@given(BATCHES, st.randoms())
def test_order_and_names_change_nothing_and_many_samples_have_the_ends_of_each(
    answers: list[tuple[list[float], int]], random: Random
) -> None:
    mixed = random.sample(answers, len(answers))
    values = np.array([row for row, _ in answers]).T
    low, high = score_ends(values, Groups.of(np.unique([image for _, image in answers], return_inverse=True)[1]))
    for number in range(len(values)):
        column = {f"example {n}": row[number] for n, (row, _) in enumerate(mixed)}
        pictures = {f"example {n}": f"picture {image}" for n, (_, image) in enumerate(mixed)}
        ends = _ends(score_interval(column, pictures))
        assert ends == (pytest.approx(low[number], abs=1e-9), pytest.approx(high[number], abs=1e-9))


@settings(max_examples=60, deadline=None)
@given(ANSWERS)
def test_wrong_for_right_turns_the_interval_round(answers: list[tuple[float, int]]) -> None:
    clusters = {str(n): f"picture {image}" for n, (_, image) in enumerate(answers)}
    low, high = _ends(score_interval({str(n): value for n, (value, _) in enumerate(answers)}, clusters))
    turned = _ends(score_interval({str(n): 1 - value for n, (value, _) in enumerate(answers)}, clusters))
    assert turned == (pytest.approx(1 - high, abs=1e-9), pytest.approx(1 - low, abs=1e-9))


@pytest.mark.parametrize(("better", "worse", "same"), [(0, 0, 50), (1, 0, 49), (7, 2, 91), (12, 11, 200), (30, 0, 0)])
def test_right_and_wrong_answers_have_tangos_interval_of_a_difference(better: int, worse: int, same: int) -> None:
    """By the likelihood under each difference, in one table of 2 x 2 answers, and Student's quantile.

    Both models are right in no more than a few of the examples that they answer alike, so that rates of differing
    answers are small and Tango's likelihood is that of two Poisson counts. Where nearly all are differences the rate
    stops at 1.
    """
    count = better + worse + same
    values = [1.0] * better + [-1.0] * worse + [0.0] * same
    found = difference_interval([{str(n): value for n, value in enumerate(values)}])
    t, mean = stats.t.ppf(0.975, count - 1), (better - worse) / count
    least = max((better + worse) / count - mean**2, 1 / (count + 1))

    def excess(truth: float) -> float:
        against = (
            optimize.brentq(  # the rate of answers that only the first has right, by its score equation
                lambda rate: better / (rate + truth) + worse / max(rate, 1e-15) - 2 * count,
                max(0.0, -truth) + 1e-13,
                3.0,
            )
            if better and worse
            else max(0.0, -truth, better / (2 * count) - truth if not worse else worse / (2 * count))
        )
        rate = min(2 * against + truth, 1.0)
        return abs(truth - mean) - t * math.sqrt(max(rate - truth**2, least) / count)

    low, high = _ends(found)
    for end, side in ((low, -1), (high, 1)):
        assert abs(end) == 1 or excess(end) == pytest.approx(0, abs=1e-6)
        assert abs(end) == 1 or excess(end + side * 1e-3) > 0
    assert low <= mean <= high


def test_a_difference_that_was_never_seen_may_be_as_large_as_the_number_of_pictures_allows() -> None:
    """No difference in n pictures: one of 3.7 / n would show in 39 of 40 samples."""
    for pictures in (30, 300):
        found = difference_interval([{str(n): 0.0 for n in range(pictures)}])
        low, high = _ends(found)
        assert -low == pytest.approx(high)
        assert 0.9 * 3.7 / pictures < high < 1.2 * 3.7 / pictures
        assert found.p == 1
