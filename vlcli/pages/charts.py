"""Computes the geometry of inline SVG: line charts over steps, intervals on a line, bars of time."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 420.0, 230.0
"""Size of a line chart's view box."""
LEFT, RIGHT, TOP, BOTTOM = 52.0, 22.0, 10.0, 28.0
_MOST_POINTS = 240  # points of a line that are drawn; of more, every n-th and the last
COLOURS = 8
"""How many colours the style sheet has; lines take them in turn."""


class Tick(NamedTuple):
    """A mark of an axis: its coordinate in the view box and its label."""

    at: float
    label: str


class Line(NamedTuple):
    """One line of a chart: legend, number of its colour, ``d`` of an SVG path, and its (step, value) pairs."""

    label: str
    colour: int
    dashed: bool
    path: str
    points: list[tuple[float, float]]


class Chart(NamedTuple):
    """Lines over steps, with marks below and at the left, and the first and last step."""

    title: str
    log: bool
    lines: list[Line]
    xs: list[Tick]
    ys: list[Tick]
    span: tuple[float, float]

    @property
    def hover(self) -> list[list[tuple[float, float]]]:
        return [[(x, float(f"{y:.4g}")) for x, y in line.points] for line in self.lines]


def line_chart(title: str, series: Mapping[str, Points], *, log: bool = False) -> Chart | None:
    """Return a chart of (step, value) pairs by label; None where no series has a point.

    A label that ends in ``validation`` is dashed. Values that are not finite are left out. With ``log`` the scale is
    logarithmic, unless a value is below 0 or none is above it; values not above 0 are then left out.
    """
    finite = {label: [(x, y) for x, y in points if math.isfinite(y)] for label, points in series.items()}
    values = [y for points in finite.values() for _, y in points]
    log = log and bool(values) and min(values) >= 0 and max(values) > 0
    kept = {label: thinned([(x, y) for x, y in points if y > 0 or not log]) for label, points in finite.items()}
    shown = {label: points for label, points in kept.items() if points}
    if not shown:
        return None
    steps = [x for points in shown.values() for x, _ in points]
    low, high = _bounds([y for points in shown.values() for _, y in points], log)
    across = partial(_scaled, min(steps), max(steps), LEFT, WIDTH - RIGHT)
    height = math.log10 if log else float
    up = partial(_scaled, height(low), height(high), HEIGHT - BOTTOM, TOP)
    lines = []
    for number, (label, points) in enumerate(shown.items()):
        places = [f"{across(x):g},{up(height(y)):g}" for x, y in points]
        path = f"M{places[0]}m-5,0h10" if len(places) == 1 else "M" + "L".join(places)
        lines.append(Line(label, number % COLOURS, label.endswith("validation"), path, points))
    ys = [Tick(up(height(y)), short(y)) for y in (_log_ticks(low, high) if log else nice_ticks(low, high))]
    whole = [x for x in nice_ticks(min(steps), max(steps), most=5) if x == int(x)]
    return Chart(title, log, lines, [Tick(across(x), short(x)) for x in whole], ys, (min(steps), max(steps)))


def _scaled(low: float, high: float, start: float, end: float, value: float) -> float:
    share = 0.5 if high == low else (value - low) / (high - low)
    return round(start + share * (end - start), 2)


def _bounds(values: Sequence[float], log: bool) -> tuple[float, float]:
    low, high = min(values), max(values)
    if log:
        return low / 1.1, high * 1.1
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return (0.0 if 0 <= low < 0.3 * high else low - room), high + room


def thinned(points: Points, most: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """Return about ``most`` points: every n-th, and the last."""
    every = max(1, math.ceil(len(points) / most))
    return [*points[:-1:every], *points[-1:]]


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers between two bounds, at most about so many."""
    if high <= low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [round(n * step, 12) for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = [f * 10.0**d for d in decades for f in factors if low <= f * 10.0**d <= high]
        if len(ticks) >= 3:
            return ticks[:: math.ceil(len(ticks) / 7)]
    return nice_ticks(low, high)


def short(value: float) -> str:
    """Return a number in few letters: ``12k``, ``0.003``, ``1.25e-4``."""
    if value and (abs(value) < 1e-3 or abs(value) >= 1e6):
        digits, power = f"{value:.2e}".split("e")
        return f"{float(digits):g}e{int(power)}"
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{value:.4g}"


class Bar(NamedTuple):
    """Start and width of a bar, in percent of the whole."""

    start: float
    width: float


class Span(NamedTuple):
    """A line between two values, on which others lie."""

    low: float
    high: float

    def at(self, value: float | None) -> float | None:
        """Return a value's place in percent of the line, inside it; None for none or one that is not finite."""
        if value is None or not math.isfinite(value):
            return None
        return round(100 * min(max((value - self.low) / (self.high - self.low), 0), 1), 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        return [(self.at(value) or 0.0, short(value)) for value in nice_ticks(self.low, self.high, 4)]


def span_of(values: Sequence[float]) -> Span:
    """Return the line from 0 to 1 for fractions, else to a round number above the highest."""
    high = max((value for value in values if math.isfinite(value)), default=1.0)
    if high <= 1:
        return Span(0.0, 1.0)
    ticks = nice_ticks(0, high, 4)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else high
    return Span(0.0, ticks[-1] + (step if ticks[-1] < high else 0))
