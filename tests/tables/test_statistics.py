"""Intervals and tests of tables against scipy's and against simulations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.multitest import multipletests
from table_rows import plain_row, row_of

from vlcli.metrics.clustered import difference_interval
from vlcli.metrics.interval import interval
from vlcli.tables.results import RowResults, RunResults
from vlcli.tables.statistics import (
    Contrast,
    adjusted,
    contrast,
    estimate,
    holm,
    seeds_needed,
)


def draw(generator: np.random.Generator, images: int, each: int, seeds: int = 1) -> tuple[list[dict[str, float]], dict]:
    """Numbers around 0 whose examples share an effect of their image, and those of a seed an effect of the seed."""
    shared = generator.normal(0, 1, images)[:, None]
    columns = []
    for _ in range(seeds):
        values = shared + generator.normal(0, 1, (images, each)) + generator.normal(0, 0.3 * (seeds > 1))
        columns.append({f"{n}": float(value) for n, value in enumerate(values.ravel())})
    return columns, {f"{n}": f"image{n // each}" for n in range(images * each)}


def test_over_seeds_it_is_students_interval_and_the_paired_t_test() -> None:
    first, second = [0.71, 0.74, 0.69, 0.75], [0.76, 0.75, 0.74, 0.80]
    found = estimate(plain_row("a", first), "accuracy")
    assert found is not None
    low, high = stats.t.interval(0.95, 3, np.mean(first), stats.sem(first))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert (found.over, found.count) == ("seeds", 4)
    made = contrast(plain_row("b", second), plain_row("a", first), "accuracy")
    assert made is not None
    peer = stats.ttest_rel(second, first)
    assert made.p == pytest.approx(peer.pvalue)
    assert (made.low, made.high) == pytest.approx(tuple(peer.confidence_interval()))
    assert (made.over, made.count) == ("seeds", 4)


def test_seeds_that_all_score_1_have_the_interval_of_their_pictures(tmp_path: Path) -> None:
    answers = {str(n): 1.0 for n in range(40)}
    images = {key: [f"image{int(key) // 4}"] for key in answers}
    found = estimate(row_of("right", tmp_path, dict.fromkeys((1, 2, 3), answers), images), "accuracy")
    assert found is not None
    assert (found.mean, found.high, found.over, found.count, found.seeds) == (1.0, 1.0, "images", 10, 3)
    assert found.low is not None
    assert 0.6 < found.low < 0.9


def test_only_common_seeds_are_paired() -> None:
    first, second = plain_row("a", [0.1, 0.2, 0.4]), plain_row("b", [0.9, 0.3, 0.6])
    second.runs[0].seed = 99
    made = contrast(second, first, "accuracy")
    assert made is not None
    assert (made.count, made.difference) == (2, pytest.approx(0.15))


def test_examples_of_one_image_are_no_more_than_the_image(tmp_path: Path) -> None:
    """Four copies of each answer make the interval no narrower, where all four are about one image."""
    generator = np.random.default_rng(1)
    answers = (generator.random(60) < 0.7).astype(float)
    once = {f"{n}-0": float(value) for n, value in enumerate(answers)}
    copies = {f"{n}-{copy}": float(value) for n, value in enumerate(answers) for copy in range(4)}
    images = {key: [f"image{key.split('-')[0]}"] for key in copies}
    alone = estimate(row_of("once", tmp_path, {1: once}), "accuracy")
    together = estimate(row_of("copies", tmp_path, {1: copies}, images), "accuracy")
    blind = estimate(row_of("blind", tmp_path, {1: copies}), "accuracy")
    assert alone is not None
    assert together is not None
    assert blind is not None
    assert (alone.over, together.over, together.count) == ("examples", "images", 60)
    assert together.half == pytest.approx(alone.half, rel=0.1)
    assert (blind.half or 1) < 0.6 * (together.half or 0)


def test_pairs_that_share_an_image_are_one_cluster(tmp_path: Path) -> None:
    answers = {str(n): float(n % 3 > 0) for n in range(12)}
    images = {str(n): [f"a{n // 4}", f"a{n // 4}b{n % 2}"] for n in range(12)}
    found = estimate(row_of("pairs", tmp_path, {1: answers}, images), "accuracy")
    assert found is not None
    assert (found.count, found.over) == (3, "images")


def test_a_ranking_of_a_picture_is_not_that_of_the_example_with_its_name(tmp_path: Path) -> None:
    """Pictures called 0, 1, 2 ... and captions numbered in the same way, five of a picture."""
    ranked = {f"text/{n}": float(n % 2) for n in range(6)}
    images = {str(n): [str(n // 5)] for n in range(30)}
    found = estimate(row_of("names", tmp_path, {1: ranked}, images), "accuracy")
    assert found is not None
    assert (found.count, found.over) == (6, "images")


def test_one_seed_is_paired_by_example_and_several_by_both(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)

    def answers(chance: float) -> dict[str, float]:
        return {str(n): float(generator.random() < chance) for n in range(200)}

    images = {str(n): [str(n // 2)] for n in range(200)}
    first = row_of("first", tmp_path, {1: answers(0.5), 2: answers(0.5), 3: answers(0.5)}, images)
    second = row_of("second", tmp_path, {1: answers(0.8), 2: answers(0.8), 3: answers(0.8)}, images)
    several = contrast(second, first, "accuracy")
    assert several is not None
    assert several.examples is not None
    assert (several.over, several.examples.over) == ("seeds", "seeds and images")
    assert several.difference == pytest.approx(several.examples.difference)
    del first.runs[1:]
    single = contrast(second, first, "accuracy")
    assert single is not None
    assert (single.over, single.count, single.examples) == ("images", 100, None)


@pytest.mark.parametrize(("seeds", "least", "most"), [(1, 0.90, 0.99), (5, 0.90, 1.0)])
def test_intervals_of_differences_cover_the_truth_in_simulations(seeds: int, least: float, most: float) -> None:
    generator, covered = np.random.default_rng(4), 0
    for _ in range(200):
        columns, clusters = draw(generator, 30, 3, seeds)
        found = difference_interval(columns, clusters)
        covered += found.low is None or found.high is None or found.low <= 0 <= found.high
    assert least <= covered / 200 <= most


def test_variances_of_seeds_and_images_add_as_statsmodels_adds_them() -> None:
    columns, clusters = draw(np.random.default_rng(8), 25, 3, 4)
    found = difference_interval(columns, clusters)
    values = np.array([list(column.values()) for column in columns])
    images = np.tile([int(clusters[key].removeprefix("image")) for key in columns[0]], 4)
    groups = np.stack([images, np.repeat(np.arange(4), values.shape[1])], 1)
    peer = OLS(values.ravel(), np.ones(values.size)).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    assert (found.low, found.high) == pytest.approx(tuple(peer.conf_int()[0]), rel=0.02)


def test_holm_is_the_step_down_of_bonferroni() -> None:
    assert adjusted([0.01, None, 0.04, 0.03]) == [pytest.approx(0.03), None, pytest.approx(0.06), pytest.approx(0.06)]
    assert adjusted([None]) == [None]
    assert [one.holm for one in holm([Contrast("b", "a", "m", 0.1, p=0.02)])] == [pytest.approx(0.02)]
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 40):
        values = [*rng.random(count).round(1), *(rng.random(count) / 50)]
        assert adjusted(values) == multipletests(values, method="holm")[1].tolist()


def test_the_number_of_seeds_has_the_power_in_simulations() -> None:
    seeds = seeds_needed(0.02, 0.03)
    assert seeds is not None
    samples = np.random.default_rng(5).normal(0.02, 0.03, (2000, seeds))
    share = (stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05).mean()
    assert 0.77 <= share <= 0.85
    fewer = np.random.default_rng(5).normal(0.02, 0.03, (2000, seeds - 3))
    assert (stats.ttest_1samp(fewer, 0, axis=1).pvalue < 0.05).mean() < 0.8


@pytest.mark.parametrize(("difference", "deviation", "seeds"), [(0.1, 1e-6, 2), (1e-6, 1.0, None), (0.0, 1.0, None)])
def test_the_number_of_seeds_at_the_ends(difference: float, deviation: float, seeds: int | None) -> None:
    assert seeds_needed(difference, deviation) == seeds


def test_differences_are_sure_by_chance_no_more_often_than_the_level() -> None:
    samples = np.random.default_rng(6).normal(0, 1, (120, 5))
    decided = sum((interval(list(map(float, sample))).p or 1.0) < 0.05 for sample in samples)
    assert decided / 120 < 0.11


def test_nothing_to_say_is_said(tmp_path: Path) -> None:
    lost = RowResults("lost", [RunResults(1, "failed", error="out of memory")])
    nan = RowResults("nan", [RunResults(1, metrics={"accuracy": float("nan")})])
    alone = plain_row("alone", [0.5])
    assert estimate(lost, "accuracy") is None
    assert estimate(nan, "accuracy") is None
    assert contrast(lost, alone, "accuracy") is None
    found = estimate(alone, "accuracy")
    assert found is not None
    assert (found.low, found.over) == (None, "")
    every = estimate(row_of("every", tmp_path, {1: dict.fromkeys("abcdefgh", 1.0)}), "accuracy")
    assert every is not None
    assert every.low == pytest.approx(stats.binomtest(8, 8).proportion_ci(0.95, "wilson").low)
