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
LOST = "#e8e8e8"
REFERENCE = "reference"


def heat_map(summary: Summary, metric: str | None = None) -> Any:
    """A matplotlib figure of a grid: the means of one metric, differences to the reference, and why cells are empty.

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
    cells = [[_mean(grid.lines.get((row, column)), name) for column in grid.columns] for row in grid.rows]
    values = np.ma.masked_invalid(np.array(cells, np.float64))
    figure = Figure(figsize=(1.9 + 1.25 * len(grid.columns), 1.7 + 0.62 * len(grid.rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_facecolor(LOST)
    image = axes.imshow(values, cmap="viridis", aspect="auto")
    _write(axes, grid, name, image)
    axes.set_xticks(range(len(grid.columns)), grid.columns, rotation=25, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(grid.rows)), grid.rows)
    axes.set(xlabel=grid.names[1], ylabel=grid.names[0])
    axes.tick_params(length=0)
    if values.count():
        figure.colorbar(image, ax=axes, label=name)
    figure.suptitle(summary.title or name, fontsize=11, x=0.01, ha="left")
    return figure


def _mean(line: Line | None, name: str) -> float:
    found = None if line is None else line.estimates.get(name)
    return float("nan") if found is None else found.mean


def _write(axes: Any, grid: Grid, name: str, image: Any) -> None:
    """The numbers in the cells, dark on light and light on dark; the reason where there is none."""
    for height, row in enumerate(grid.rows):
        for place, column in enumerate(grid.columns):
            line = grid.lines.get((row, column))
            found = None if line is None else line.estimates.get(name)
            if line is None or found is None:
                reason = "not in the table" if line is None else line.error or "no such metric"
                text, colour, size = _wrapped(reason), "#555555", 6.5
            else:
                red, green, blue, _ = image.cmap(image.norm(found.mean))
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
