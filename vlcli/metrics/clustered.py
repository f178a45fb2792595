"""95 % intervals over examples: of a score, and of the difference of two scores.

Examples that share an image form a cluster: :func:`_spread` estimates by how much this inflates the variance of a mean
(the design effect). Where few pictures are answered wrongly, or few differently, it is poorly known: a few examples at
both ends of the range count too (:data:`PRIOR`), as in Agresti and Coull 1998 and Agresti and Min 2005. With the
number of independent answers that the examples are worth (Korn and Graubard 1998), a score has Wilson's interval, and a
difference the score interval of Tango 1998, with Student's quantile. Numbers of another range have Student's.
``benchmarks/coverage.py`` measures how often the intervals hold the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcli.metrics.interval import LEVEL, Interval, quantile

# Clusters that are added at each end of a range before the variance is estimated, no less than half an example
PRIOR = 1 / 8
# Beginnings of keys in the rows of rankings: image retrieval for a sentence, sentences for an image
SIDES = ("image/", "text/")
_HALVINGS = 50

Values = Mapping[str, float]  # one number per example, by the example's key
Clusters = Mapping[str, str]  # the cluster of each example, by the example's key
Numbers = NDArray[np.float64]


def score_interval(values: Values, clusters: Clusters | None = None, level: float = LEVEL) -> Interval:
    """Return the mean of a score over examples with its interval, clustered by image; None: each example by itself.

    Scores in [0, 1] have an interval in [0, 1], which is Wilson's where each is 0 or 1 and no two examples share an
    image. Other numbers have Student's.
    """
    scores = np.fromiter(values.values(), np.float64)
    if not (scores.min() >= 0 and scores.max() <= 1):
        return difference_interval([values], clusters, level)
    groups = Groups.of(groups_of(values, clusters))
    low, high = score_ends(scores, groups, level)
    return Interval(float(scores.mean()), float(low), float(high), groups.count)


def difference_interval(columns: Sequence[Values], clusters: Clusters | None = None, level: float = LEVEL) -> Interval:
    """Return the mean of paired differences over examples with its interval, clustered by image.

    Columns are differences by example, one mapping per seed, all with the same keys. With several seeds the variance is
    clustered by image and by seed (Cameron, Gelbach and Miller 2011).
    """
    values = np.array([list(column.values()) for column in columns], np.float64)  # (seeds, examples)
    groups = Groups.of(groups_of(columns[0], clusters))
    mean, between, freedom = float(values.mean()), 0.0, groups.freedom
    if len(columns) > 1:
        rest = values - mean
        by_seed = float((rest.sum(1) ** 2).sum()) * len(columns) / (len(columns) - 1)
        both = float((groups.sums(rest) ** 2).sum())
        between, freedom = (by_seed - both) / values.size**2, min(freedom, len(columns) - 1)
    bounded = np.abs(values).max() <= 1
    if groups.count < 2 or not (bounded or np.ptp(values)):
        return Interval(mean, count=groups.count)
    low, high, p = difference_ends(values.mean(0), groups, level, between, freedom, bounded=bool(bounded))
    return Interval(mean, min(float(low), mean), max(float(high), mean), groups.count, float(p))


@dataclass(frozen=True)
class Groups:
    """Which examples share an image.

    Attributes:
        order: (N,) the examples, those of one cluster side by side; None: they already are.
        starts: (K,) where each cluster starts in that order.
        sizes: (K,).
        freedom: degrees of freedom: clusters of equal size that would be as good, less one, at least one.
    """

    order: NDArray[np.int64] | None
    starts: NDArray[np.int64]
    sizes: Numbers
    freedom: float

    @classmethod
    def of(cls, numbers: NDArray[np.int64]) -> Groups:
        """Return the groups of examples with these numbers of clusters (N,), from 0 on."""
        sizes = np.bincount(numbers)
        order = None if (np.diff(numbers) >= 0).all() else np.argsort(numbers, kind="stable")
        freedom = len(numbers) ** 2 / float((sizes**2.0).sum()) - 1
        return cls(order, np.cumsum(sizes) - sizes, sizes.astype(np.float64), max(freedom, 1.0))

    @property
    def count(self) -> int:
        return len(self.sizes)

    def sums(self, values: Numbers) -> Numbers:
        """Return the sum of each cluster (..., K) of values (..., N)."""
        ordered = values if self.order is None else values[..., self.order]
        return np.asarray(np.add.reduceat(ordered, self.starts, axis=-1))


def score_ends(scores: Numbers, groups: Groups, level: float = LEVEL) -> tuple[Numbers, Numbers]:
    """Return both ends (...) of the interval of the mean of scores in [0, 1], of shape (..., N)."""
    from scipy.special import ndtri

    centre, variance, inflation = _spread(scores, groups, (0.0, 1.0))
    narrower = quantile(level, scores.shape[-1] - 1) / quantile(level, groups.freedom)
    count = scores.shape[-1] * centre * (1 - centre) / (variance * inflation) * narrower**2
    mean, z = scores.mean(-1), float(ndtri((1 + level) / 2)) ** 2
    middle = (mean + z / (2 * count)) / (1 + z / count)
    half = np.sqrt(z * (mean * (1 - mean) / count + z / (4 * count**2))) / (1 + z / count)
    return np.maximum(np.minimum(middle - half, mean), 0), np.minimum(np.maximum(middle + half, mean), 1)


def difference_ends(
    values: Numbers,
    groups: Groups,
    level: float = LEVEL,
    between: float = 0.0,
    freedom: float | None = None,
    *,
    bounded: bool = True,
) -> tuple[Numbers, Numbers, Numbers]:
    """Return both ends (...) of the interval of the mean of differences (..., N), and the p value of 0.

    Args:
        between: variance of the mean over seeds, less what clusters and seeds share; it is estimated, and may be
            negative: it takes no more than half of the clusters' variance.
        freedom: degrees of freedom; None: those of the groups.
        bounded: whether the differences lie in [-1, 1]; if not, the interval is Student's.
    """
    from scipy.special import stdtr

    freedom = groups.freedom if freedom is None else freedom
    _, variance, inflation = _spread(values, groups, (-1.0, 1.0) if bounded else ())
    mean, square, size = values.mean(-1), (values**2).mean(-1), np.abs(values).mean(-1)
    least = np.maximum(square - mean**2, 1 / (values.shape[-1] + 1))  # one more example differs, at either end
    share, t = inflation / values.shape[-1], quantile(level, freedom)

    def error(truth: Numbers) -> Numbers:
        known = variance
        if bounded:  # Tango's variance, given the truth: answers that must differ for it, were none seen
            more = (np.sqrt(np.maximum(size**2 + 4 * truth * (truth - mean), 0)) - size) / 2
            known = np.maximum(np.minimum(square + more, 1) - truth**2, least)
        return np.asarray(np.sqrt(np.maximum(share * known + between, share * known / 2)))

    p = 2 * stdtr(freedom, -np.abs(mean) / error(np.zeros_like(mean)))
    if not bounded:
        return mean - t * error(mean), mean + t * error(mean), p
    low, high = (_last(mean, end, lambda truth: np.abs(truth - mean) <= t * error(truth)) for end in (-1.0, 1.0))
    return low, high, p


def _last(start: Numbers, end: float, holds: Callable[[Numbers], NDArray[np.bool_]]) -> Numbers:
    # the number nearest to ``end`` that holds, by halving
    inside, outside = start, np.full_like(start, end)
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        held = holds(middle)
        inside, outside = np.where(held, middle, inside), np.where(held, outside, middle)
    return outside


def _spread(values: Numbers, groups: Groups, ends: tuple[float, ...]) -> tuple[Numbers, Numbers, Numbers]:
    # Mean, variance of an example, and inflation of the mean's variance (...) of values (..., N) with the added ends.
    # The inflation is that of the correlation within clusters, over pairs or over examples, whichever is more (with
    # clusters of many sizes, few large ones dominate the pairs), and no less than 1.
    number, sizes = values.shape[-1], groups.sizes
    size = number / groups.count
    added = max(PRIOR * size, 0.5) if ends else 0.0
    total = number + 2 * added
    mean = (values.sum(-1) + added * sum(ends)) / total
    beside = added * sum((end - mean) ** 2 for end in ends)
    rest = groups.sums(values) - sizes * mean[..., None]
    alone = groups.sums((values - mean[..., None]) ** 2)
    shared, alike = rest**2 - alone, alone.sum(-1) + beside
    others = np.maximum(sizes - 1, 1)
    pairs, expected = (sizes * (sizes - 1)).sum(), 2 * added * (size - 1)
    over_pairs = shared.sum(-1) + beside * (size - 1)
    many = max(sizes[sizes > 1].sum() + 2 * added, 1.0)
    over_examples = ((shared / others).sum(-1) + beside) / many * (pairs + expected)
    inflation = 1 + np.maximum(np.maximum(over_pairs, over_examples), 0) / np.maximum(alike, 1e-300)
    if not ends and groups.count > 1:
        inflation *= groups.count / (groups.count - 1)
    return mean, alike / total, inflation


def groups_of(keys: Sequence[str] | Values, clusters: Clusters | None) -> NDArray[np.int64]:
    """Return the number of each example's cluster (N,)."""
    names = [key if clusters is None else cluster_of(key, clusters) for key in keys]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64)


def cluster_of(key: str, clusters: Clusters) -> str:
    """Return the cluster of a row of predictions; the key of a ranking's row is a side with an example or an image."""
    bare = next((key.removeprefix(side) for side in SIDES if key.startswith(side)), key)
    return clusters.get(key) or clusters.get(bare) or bare
