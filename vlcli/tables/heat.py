"""The heat map of a grid of results: one metric of encodings and models, for instance."""

from __future__ import annotations

import textwrap
from typing import Any

from vlcli.errors import UsageError
from vlcli.tables.cells import decided, number, signed
from vlcli.tables.grid import Grid, grid_of
from vlcli.tables.statistics import Estimate
from vlcli.tables.summary import Line, Summary

WIDEST = 16
"""Letters of a line inside a cell."""
LETTER = 0.085
"""Width of a letter of the title, in inches."""
LOST = "#e8e8e8"
REFERENCE = "reference"


def heat_map(summary: Summary, metric: str | None = None) -> Any:
    """A matplotlib figure of a grid: the means of one metric, differences to the reference, and why cells are empty.

    Colours show the differences where the table has a reference: beside columns of other data, differences between rows
    would otherwise not be seen. Without a reference they show the means.

    Args:
        summary: of a table with two axes.
        metric: which; None: the first.

    Raises:
        UsageError: the table is no grid, or has no such metric.
        ImportError: matplotlib is not installed.
    """
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    name, grid = metric or summary.metrics[0], grid_of(summary)
    if name not in summary.metrics:
        expected = ", ".join(summary.metrics)
        raise UsageError("The table has no such metric.", where=summary.title, got=name, expected=expected)
    width, height = 1.9 + 1.25 * len(grid.columns), 1.7 + 0.62 * len(grid.rows)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_facecolor(LOST)
    compared = any(name in line.contrasts for line in grid.lines.values())
    values = [[_value(grid.lines.get((row, column)), name, compared) for column in grid.columns] for row in grid.rows]
    shown = np.ma.masked_invalid(np.array(values, np.float64))
    image = _image(axes, shown, _furthest(grid, name) if compared else None)
    _write(axes, grid, name, image, values)
    axes.set_xticks(range(len(grid.columns)), grid.columns, rotation=25, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(grid.rows)), grid.rows)
    axes.set(xlabel=grid.names[1], ylabel=grid.names[0])
    axes.tick_params(length=0)
    if shown.count():
        figure.colorbar(image, ax=axes, label=f"{name}: difference to {summary.reference}" if compared else name)
    title = textwrap.fill(summary.title or name, int(width / LETTER))
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    return figure


def _value(line: Line | None, name: str, compared: bool) -> float:
    """What the colour of a cell shows: its difference to the reference, or its mean."""
    found = None if line is None else line.estimates.get(name)
    if line is None or found is None:
        return float("nan")
    if not compared:
        return found.mean
    difference = line.contrasts.get(name)
    return 0.0 if difference is None else difference.difference


def _furthest(grid: Grid, name: str) -> float:
    """The end furthest from zero of all intervals of the differences; so only clear differences have strong colours."""
    found = [line.contrasts[name] for line in grid.lines.values() if name in line.contrasts]
    ends = [end for one in found for end in (one.difference, one.low, one.high) if end is not None]
    return max(map(abs, ends), default=0.0) or 1.0


def _image(axes: Any, values: Any, furthest: float | None) -> Any:
    """The coloured cells; of differences, blue is more than the reference has, red less, and white the same."""
    if furthest is None:
        return axes.imshow(values, cmap="viridis", aspect="auto")
    return axes.imshow(values, cmap="RdBu", vmin=-furthest, vmax=furthest, aspect="auto")


def _write(axes: Any, grid: Grid, name: str, image: Any, values: list[list[float]]) -> None:
    """The numbers in the cells, dark on light and light on dark; the reason where there is none."""
    for height, row in enumerate(grid.rows):
        for place, column in enumerate(grid.columns):
            line = grid.lines.get((row, column))
            found = None if line is None else line.estimates.get(name)
            if line is None or found is None:
                reason = "not in the table" if line is None else line.error or "no such metric"
                text, colour, size = _wrapped(reason), "#555555", 6.5
            else:
                red, green, blue, _ = image.cmap(image.norm(values[height][place]))
                colour = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
                text, size = _numbers(found, line, name), 8.0
            axes.text(place, height, text, ha="center", va="center", color=colour, fontsize=size)


def _wrapped(reason: str) -> str:
    lines = textwrap.wrap(reason, WIDEST)
    return "\n".join(lines[:3]) + ("…" if len(lines) > 3 else "")


def _numbers(found: Estimate, line: Line, name: str) -> str:
    half = "" if found.half is None else f" ± {number(found.half)}"
    difference = line.contrasts.get(name)
    if line.kind == REFERENCE:
        return f"{number(found.mean)}{half}\nreference"
    if difference is None:
        return f"{number(found.mean)}{half}"
    return f"{number(found.mean)}{half}\n{signed(difference.difference)}{' *' if decided(difference) else ''}"
