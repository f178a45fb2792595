"""Computes means, intervals and paired differences of a table's rows, and what they decide.

Over seeds a mean has Student's interval; with one seed, an interval over examples clustered by image
(``vlcli.metrics.clustered``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from vlcli.metrics.clustered import Clusters, Values, difference_interval, score_interval
from vlcli.metrics.clusters import read_clusters
from vlcli.metrics.interval import interval, quantile
from vlcli.metrics.rows import column, read_lines
from vlcli.tables.results import RowResults, RunResults

PREDICTIONS = "predictions.jsonl"


def values_of(run: RunResults, metric: str) -> Values | None:
    """Return the values by example whose mean is a metric; None without predictions, or where it is no such mean."""
    _, name, folder = run.place(metric)
    if folder is None or metric not in run.metrics:
        return None
    path = folder / PREDICTIONS
    changed = path.stat().st_mtime_ns if path.is_file() else -1  # a file that was written anew is read anew
    return _column(path, changed, name, run.metrics[metric])


def clusters_of(run: RunResults, metric: str) -> Clusters | None:
    """Return the cluster of each example of a metric; None where the images of examples are not known."""
    folder = run.place(metric)[2]
    return None if folder is None else read_clusters(folder)


@lru_cache(maxsize=64)
def _rows(path: Path, changed: int) -> list[dict[str, Any]]:
    return read_lines(path)[0] if changed >= 0 else []


@lru_cache(maxsize=1024)
def _column(path: Path, changed: int, name: str, value: float) -> Values | None:
    rows = _rows(path, changed)
    return column(name, value, rows) if rows else None


ALPHA, POWER = 0.05, 0.8
"""Level of the tests, and power at which numbers of seeds are computed."""
MOST_SEEDS = 10_000
# Differences in standard deviations beyond which the power is 1 with two seeds, to every digit that is shown
LARGEST = 30.0
Over = Literal["seeds", "images", "examples", "seeds and images", ""]
"""What varies in an interval: seeds; images of the test data; examples, where their images are not known; nothing."""


@dataclass(frozen=True)
class Estimate:
    """A mean over ``seeds`` seeds with its 95 % interval, whose ends are None where it is not known.

    Attributes:
        count: seeds, images or examples, as ``over`` says.
        over: what varies in the interval.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    count: int = 1
    over: Over = ""
    seeds: int = 1

    @property
    def half(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True)
class Contrast:
    """The paired difference of a row to the reference row in one metric.

    Attributes:
        difference: mean of ``row - reference`` over what is paired.
        low: lower end of the 95 % interval; None where the interval is not known.
        count: pairs: seeds, images or examples, as ``over`` says.
        holm: the p value after Holm's correction over the table's contrasts; None before :func:`holm`.
        seeds: number of paired seeds that would decide a difference of this size with a power of 80 %; None where fewer
            than two seeds are paired, or no number below ten thousand would.
        examples: the same over seeds and images together, where all seeds answered the same examples.
    """

    row: str
    reference: str
    metric: str
    difference: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    count: int = 1
    over: Over = ""
    holm: float | None = None
    seeds: int | None = None
    examples: Contrast | None = None


def estimate(row: RowResults, metric: str) -> Estimate | None:
    """Return the mean of one metric with its interval over seeds; None where no run has a finite value.

    With one seed, or where all seeds have the same value, the interval is that over the examples of one of them.
    """
    by_seed = row.values(metric)
    if not by_seed:
        return None
    sure = interval(list(by_seed.values()))
    if sure.low is not None:
        return Estimate(sure.mean, sure.low, sure.high, sure.count, "seeds", sure.count)
    run = next(run for run in row.done if run.seed in by_seed and metric in run.metrics)
    columns = values_of(run, metric)
    if columns is None:
        return Estimate(sure.mean, count=sure.count, over="seeds" if sure.count > 1 else "", seeds=sure.count)
    clusters = clusters_of(run, metric)
    over: Over = "examples" if clusters is None else "images"
    ends = score_interval(columns, clusters)
    return Estimate(sure.mean, ends.low, ends.high, ends.count, over, sure.count)


def contrast(row: RowResults, reference: RowResults, metric: str) -> Contrast | None:
    """Return the difference of a row to a reference row; None where one of them lacks the metric.

    It is paired by seed where both have two common seeds or more, else by example where both answered the same ones.
    """
    first, second = reference.values(metric), row.values(metric)
    common = [seed for seed in first if seed in second]
    if not first or not second:
        return None
    shared = _by_example(row, reference, metric, common)
    if len(common) < 2:
        apart = fmean(second.values()) - fmean(first.values())
        return shared or Contrast(row.label, reference.label, metric, apart)
    differences = [second[seed] - first[seed] for seed in common]
    sure = interval(differences)
    if sure.low is None and shared is not None:
        return shared
    paired = Contrast(row.label, reference.label, metric, sure.mean, sure.low, sure.high, sure.p, len(common), "seeds")
    deviation = 0.0 if sure.low is None else stdev(differences)  # 0: they differ by rounding only
    return replace(paired, seeds=seeds_needed(sure.mean, deviation), examples=shared)


def _by_example(row: RowResults, reference: RowResults, metric: str, common: Sequence[int | None]) -> Contrast | None:
    columns: list[Values] = []
    clusters: Clusters | None = None
    for seed in common:
        first, second = (next(run for run in one.done if run.seed == seed) for one in (reference, row))
        one, other = values_of(first, metric), values_of(second, metric)
        if one is None or other is None or one.keys() != other.keys() or (columns and one.keys() != columns[0].keys()):
            return None
        columns.append({key: other[key] - one[key] for key in one})
        clusters = clusters or clusters_of(second, metric) or clusters_of(first, metric)
    if not columns or (clusters is None and len(columns) > 1):
        return None
    sure = difference_interval(columns, clusters)
    over: Over = "seeds and images" if len(columns) > 1 else "examples" if clusters is None else "images"
    return Contrast(row.label, reference.label, metric, sure.mean, sure.low, sure.high, sure.p, sure.count, over)


def equivalence(contrast: Contrast, bound: float) -> float | None:
    """Return the p value of a difference over seeds lying within plus and minus ``bound``; None without interval.

    It is the larger of two one-sided t tests, against minus and plus ``bound``.
    """
    from scipy.special import stdtr

    if contrast.low is None or contrast.high is None:
        return None
    error = (contrast.high - contrast.low) / 2 / quantile(1 - ALPHA, contrast.count - 1)
    return float(stdtr(contrast.count - 1, (abs(contrast.difference) - bound) / error))


def holm(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Return the contrasts of a table with p values after Holm's step-down correction."""
    values = adjusted([one.p for one in contrasts])
    return [replace(one, holm=value) for one, value in zip(contrasts, values, strict=True)]


def adjusted(values: Sequence[float | None]) -> list[float | None]:
    """Return p values after Holm's correction; None (a test that could not be made) counts for nothing.

    The smallest of n values is multiplied by n, the next by n - 1, and so on; none becomes smaller than one before it.
    statsmodels does the same, but collects garbage at every call: 0.2 s where torch is loaded, for each paper's table.
    """
    order = sorted((value, index) for index, value in enumerate(values) if value is not None)
    corrected, largest = list(values), 0.0
    for rank, (value, index) in enumerate(order):
        largest = max(largest, value * (len(order) - rank))
        corrected[index] = min(largest, 1.0)
    return corrected


def seeds_needed(difference: float, deviation: float) -> int | None:
    """Return the number of paired seeds with which a paired t test finds a difference; None above ten thousand.

    ``deviation`` is the standard deviation of the paired differences.
    """
    from statsmodels.stats.power import TTestPower

    if not difference:
        return None
    size, test = min(abs(difference) / max(deviation, 1e-12), LARGEST), TTestPower()
    numbers = range(2, MOST_SEEDS + 1)  # solve_power would look for a fraction, and not always find it
    # where the power is 1 but for rounding, scipy's noncentral t may be nan
    index = bisect_left(numbers, True, key=lambda number: not test.power(size, number, ALPHA) < POWER)
    return numbers[index] if index < len(numbers) else None
