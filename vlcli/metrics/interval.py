"""Mean and confidence interval over a few runs (seeds)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A mean over runs and the half width of its confidence interval.

    Attributes:
        mean: arithmetic mean.
        half: half width; None where one run says nothing about the spread.
        count: how many runs.
    """

    mean: float
    half: float | None
    count: int

    def text(self, digits: int = 3) -> str:
        """``0.812 ± 0.015``, or the mean alone."""
        spread = "" if self.half is None else f" ± {self.half:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}"


def interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Student's t interval of the mean of ``values``.

    Raises:
        ValueError: no value was given.
    """
    count = len(values)
    if not count:
        raise ValueError("an interval needs at least one value")
    mean = math.fsum(values) / count
    if count == 1:
        return Interval(mean, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return Interval(mean, t_quantile(level, count - 1) * math.sqrt(variance / count), count)


def t_quantile(level: float, freedom: int) -> float:
    """The t with P(-t < T < t) = ``level`` for ``freedom`` degrees of freedom, by bisection."""
    if not 0 < level < 1 or freedom < 1:
        raise ValueError(f"no t quantile for level {level} and {freedom} degrees of freedom")
    low, high = 0.0, 1.0
    while t_within(high, freedom) < level:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_within(middle, freedom) < level else (low, middle)
    return (low + high) / 2


def t_within(t: float, freedom: int) -> float:
    """P(-t < T < t), the finite series of Abramowitz and Stegun 26.7.3 (odd) and 26.7.4 (even)."""
    angle = math.atan2(t, math.sqrt(freedom))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for step in range(1 + odd, freedom, 2):  # factors (step)/(step + 1) build 2/3, 4/5 ... or 1/2, 3/4 ...
        total += term
        term *= square * step / (step + 1)
    if odd:
        return 2 / math.pi * (angle + sine * total)
    return sine * total
