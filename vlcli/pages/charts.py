"""The geometry of inline SVG: line charts over steps, intervals on a line, bars of time. Templates draw it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 420.0, 230.0
"""Size of a line chart's view box."""
LEFT, RIGHT, TOP, BOTTOM = 52.0, 22.0, 10.0, 28.0
MOST_POINTS = 240
"""Points of a line that are drawn; of more, every n-th and the last."""
COLOURS = 8
"""How many colours the style sheet has; lines take them in turn."""


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: its place in the view box and its label."""

    at: float
    label: str


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        label: what the legend calls it.
        colour: number of its colour.
        dashed: whether it is of validation data.
        path: ``d`` of an SVG path.
        points: (step, value) of what is drawn, for reading values.
    """

    label: str
    colour: int
    dashed: bool
    path: str
    points: list[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """Lines over steps.

    Attributes:
        title: what the height is.
        log: whether the height is logarithmic.
        lines: what is drawn.
        xs: marks below.
        ys: marks at the left.
        span: first and last step.
    """

    title: str
    log: bool
    lines: list[Line]
    xs: list[Tick]
    ys: list[Tick]
    span: tuple[float, float]

    @property
    def hover(self) -> list[list[tuple[float, float]]]:
        """(step, value) of every line in four digits, for reading values."""
        return [[(x, float(f"{y:.4g}")) for x, y in line.points] for line in self.lines]


def line_chart(title: str, series: Mapping[str, Points], *, log: bool = False) -> Chart | None:
    """A chart of some series; None where none has a point.

    Args:
        title: what the height is.
        series: (step, value) pairs by label; a label that ends in ``validation`` is dashed. Values that are not finite
            are left out, and those not above 0 where the scale is logarithmic.
        log: a logarithmic scale, unless a value is below 0 or nothing is above it.
    """
    finite = {label: [(x, y) for x, y in points if math.isfinite(y)] for label, points in series.items()}
    values = [y for points in finite.values() for _, y in points]
    log = log and bool(values) and min(values) >= 0 and max(values) > 0
    shown = {label: thinned([(x, y) for x, y in points if y > 0 or not log]) for label, points in finite.items()}
    shown = {label: points for label, points in shown.items() if points}
    if not shown:
        return None
    steps = [x for points in shown.values() for x, _ in points]
    span = (min(steps), max(steps))
    low, high = _bounds([y for points in shown.values() for _, y in points], log)
    across = _Scale(span[0], span[1], LEFT, WIDTH - RIGHT)
    up = _Scale(_log(low) if log else low, _log(high) if log else high, HEIGHT - BOTTOM, TOP)
    lines = [
        Line(label, number % COLOURS, label.endswith("validation"), _path(points, across, up, log), points)
        for number, (label, points) in enumerate(shown.items())
    ]
    heights = _log_ticks(low, high) if log else nice_ticks(low, high)
    ys = [Tick(up(_log(value) if log else value), short(value)) for value in heights]
    xs = [Tick(across(value), short(value)) for value in nice_ticks(*span, most=5) if value == int(value)]
    return Chart(title, log, lines, xs, ys, span)


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = 0.5 if self.high == self.low else (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 2)


def _log(value: float) -> float:
    return math.log10(max(value, 1e-300))


def _bounds(values: Sequence[float], log: bool) -> tuple[float, float]:
    """The lowest and highest height, a little wider than the values."""
    low, high = min(values), max(values)
    if log:
        return low / 1.1, high * 1.1
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return (0.0 if 0 <= low < 0.3 * high else low - room), high + room


def _path(points: Points, across: _Scale, up: _Scale, log: bool) -> str:
    places = [f"{across(x):g},{up(_log(y) if log else y):g}" for x, y in points]
    return f"M{places[0]}h.01" if len(places) == 1 else "M" + "L".join(places)


def thinned(points: Points, most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """At most about so many points: every n-th, and the last."""
    every = max(1, math.ceil(len(points) / most))
    kept = list(points[::every])
    return kept if not points or kept[-1] == points[-1] else [*kept, points[-1]]


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two bounds, at most about so many."""
    if high <= low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first
    return [round((first + n) * step, 12) for n in range(count + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(_log(low)), math.ceil(_log(high)) + 1)
    for factors in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        found = [f * 10.0**d for d in decades for f in factors if low <= f * 10.0**d <= high]
        if len(found) >= 3:
            return found[:: math.ceil(len(found) / 7)]
    return nice_ticks(low, high)


def short(value: float) -> str:
    """A number in few letters: ``12k``, ``0.003``, ``2e-05``."""
    if value and (abs(value) < 1e-4 or abs(value) >= 1e6):
        return f"{value:.0e}" if float(f"{value:.0e}") == value else f"{value:.1e}"
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:.4g}"


@dataclass(frozen=True)
class Span:
    """A line between two values, on which others lie; places are in percent."""

    low: float
    high: float

    def at(self, value: float | None) -> float | None:
        """A value's place; None for none."""
        return None if value is None else round(100 * (value - self.low) / (self.high - self.low), 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Places of round numbers, and the numbers."""
        return [(self.at(value) or 0.0, short(value)) for value in nice_ticks(self.low, self.high, 4)]


@dataclass(frozen=True)
class Bar:
    """A bar of time: where it begins and how long it is, in percent of the whole; at least a hair wide."""

    start: float
    width: float


@dataclass
class Axis:
    """A line from 0 to a highest value, on which values and intervals lie; places are in percent."""

    high: float = 1.0
    marks: list[Tick] = field(default_factory=list)

    def at(self, value: float | None) -> float | None:
        """A value's place, inside the line; None for none."""
        return None if value is None or not math.isfinite(value) else round(100 * min(max(value / self.high, 0), 1), 2)


def axis_of(values: Sequence[float]) -> Axis:
    """From 0 to 1 for fractions, else to a round number above the highest."""
    finite = [value for value in values if math.isfinite(value)]
    high = max(finite, default=1.0)
    if high <= 1:
        return Axis(1.0)
    ticks = nice_ticks(0, high, 4)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else high
    return Axis(ticks[-1] + (step if ticks[-1] < high else 0))
