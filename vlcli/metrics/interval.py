"""Mean and confidence interval over a few runs (seeds)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with its interval.

    Attributes:
        low: lower end; None where nothing says how sure the mean is.
        count: seeds, or clusters of examples.
        p: two-sided p value of a mean of 0; None where it is not tested.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    count: int = 1
    p: float | None = None

    @property
    def half(self) -> float | None:
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def text(self, digits: int = 3) -> str:
        """``0.812 ± 0.015``, or the mean alone."""
        spread = "" if self.half is None else f" ± {self.half:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}"


def interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Return Student's t interval of the mean of ``values``, one per seed; none where all values are the same."""
    count = len(values)
    if not count:
        raise ValueError("an interval needs at least one value")
    mean = fmean(values)
    if count == 1 or max(values) - min(values) <= 1e-12 * max(1.0, *map(abs, values)):
        return Interval(mean, count=count)
    from scipy.special import stdtr

    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1) / count)  # NaN where one is
    half = quantile(level, count - 1) * error
    return Interval(mean, mean - half, mean + half, count, 2 * float(stdtr(count - 1, -abs(mean) / error)))


def quantile(level: float, freedom: float) -> float:
    """Return the t with P(-t < T < t) = ``level`` for ``freedom`` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(max(freedom, 1.0), (1 + level) / 2))
