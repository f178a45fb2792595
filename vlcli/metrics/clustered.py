"""95 % intervals over examples: of a score, and of the difference of two scores.

Examples that share an image form a cluster: their mean has the variance of the clusters' totals. That variance is
poorly known where scores are near 0 or 1, so every sum counts :data:`PRIOR` of a cluster at each end of the range too
(as Agresti and Coull 1998 and Agresti and Min 2005 do for single answers). A score then has Wilson's interval with the
number of independent answers that the variance is worth (Korn and Graubard 1998), a difference has Student's.
``benchmarks/coverage.py`` measures how often the intervals hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vlcli.metrics.interval import LEVEL, Interval, quantile, student

PRIOR = 1 / 16
"""Clusters that are added at each end of a score's range before its variance is estimated."""
SIDES = ("image/", "text/")
"""Beginnings of keys in the rows of rankings: image retrieval for a sentence, sentences for an image."""

Values = Mapping[str, float]
"""One number per example, by the example's key."""
Clusters = Mapping[str, str]
"""The cluster of each example, by the example's key."""


def score_interval(values: Values, clusters: Clusters | None = None, level: float = LEVEL) -> Interval:
    """Return the mean of a score over examples with its interval, clustered by image.

    Scores in [0, 1] have an interval in [0, 1], which is Wilson's where each is 0 or 1 and no two examples share an
    image. Other numbers have Student's.

    Args:
        values: by example, at least one.
        clusters: of the examples; None: each stands for itself.
    """
    scores = np.fromiter(values.values(), np.float64)
    if not (scores.min() >= 0 and scores.max() <= 1):
        return difference_interval([values], clusters, level)
    from scipy.special import ndtri

    sums = _Sums.of(scores, groups_of(values, clusters), (0.0, 1.0))
    middle = sums.mean * (1 - sums.mean)
    narrower = quantile(level, len(scores) - 1) / quantile(level, sums.freedom)
    count = len(scores) * middle / (sums.total * sums.variance) * narrower**2
    mean, z = float(scores.mean()), float(ndtri((1 + level) / 2)) ** 2
    centre = (mean + z / (2 * count)) / (1 + z / count)
    half = math.sqrt(z * (mean * (1 - mean) / count + z / (4 * count**2))) / (1 + z / count)
    return Interval(mean, max(0.0, min(centre - half, mean)), min(1.0, max(centre + half, mean)), sums.clusters)


def difference_interval(columns: Sequence[Values], clusters: Clusters | None = None, level: float = LEVEL) -> Interval:
    """Return the mean of paired differences over examples with its interval, clustered by image.

    Args:
        columns: differences by example, one mapping per seed, all with the same keys. With several seeds the variance
            is clustered by image and by seed (Cameron, Gelbach and Miller 2011).
        clusters: of the examples; None: each stands for itself.
    """
    values = np.array([list(column.values()) for column in columns], np.float64)  # (seeds, examples)
    groups = groups_of(columns[0], clusters)
    ends = (-1.0, 1.0) if np.abs(values).max() <= 1 else None
    sums = _Sums.of(values.mean(0), groups, ends)
    mean, variance, freedom = float(values.mean()), sums.variance, sums.freedom
    if len(columns) > 1:
        rest = values - mean
        by_seed = float((rest.sum(1) ** 2).sum()) * len(columns) / (len(columns) - 1) / values.size**2
        both = sum(float((np.bincount(groups, row) ** 2).sum()) for row in rest) / values.size**2
        variance, freedom = variance + by_seed - both, min(freedom, len(columns) - 1)
    if not variance > 0 or sums.clusters < 2 or (ends is None and not np.ptp(values)):
        return Interval(mean, count=sums.clusters)
    result = student(sums.mean, variance, freedom, level, sums.clusters)
    assert result.low is not None
    assert result.high is not None
    return replace(result, mean=mean, low=min(result.low, mean), high=max(result.high, mean))


@dataclass(frozen=True)
class _Sums:
    """A mean and its clustered variance, with what :data:`PRIOR` adds.

    Attributes:
        variance: of the mean, no less than that of independent examples.
        total: examples, with those at both ends.
        freedom: degrees of freedom: clusters of equal size that would be as good, less one.
    """

    mean: float
    variance: float
    total: float
    clusters: int
    freedom: float

    @classmethod
    def of(cls, values: NDArray[np.float64], groups: NDArray[np.int64], ends: tuple[float, float] | None) -> _Sums:
        sizes = np.bincount(groups).astype(np.float64)
        alike = len(values) ** 2 / float((sizes**2).sum())
        size, added = len(values) / alike, PRIOR if ends is not None else 0.0
        total = len(values) + 2 * added * size
        mean = (float(values.sum()) + added * size * sum(ends or ())) / total
        beside = sum((end - mean) ** 2 for end in ends or ())
        together = float((np.bincount(groups, values - mean) ** 2).sum()) + added * size**2 * beside
        alone = float(((values - mean) ** 2).sum()) + added * size * beside
        variance = max(together, alone) / total**2
        if ends is None and len(sizes) > 1:
            variance *= len(sizes) / (len(sizes) - 1)
        return cls(mean, variance, total, len(sizes), max(alike - 1, 1.0))


def groups_of(keys: Sequence[str] | Values, clusters: Clusters | None) -> NDArray[np.int64]:
    """Return the number of each example's cluster (N,)."""
    names = [key if clusters is None else cluster_of(key, clusters) for key in keys]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64)


def cluster_of(key: str, clusters: Clusters) -> str:
    """Return the cluster of a row of predictions; the key of a ranking's row is a side with an example or an image."""
    bare = next((key.removeprefix(side) for side in SIDES if key.startswith(side)), key)
    return clusters.get(key) or clusters.get(bare) or bare
