"""Draws the heat map of a grid of results: one metric of encodings and models, for instance."""

import textwrap
from typing import Any

from vlcli.errors import UsageError
from vlcli.tables.cells import number, signed, star
from vlcli.tables.summary import Line, Summary, grid_of

_WIDEST = 16  # letters of a line inside a cell
# Width of a letter of the title, in inches
LETTER = 0.085
LOST = "#e8e8e8"


def heat_map(summary: Summary, metric: str | None = None) -> Any:
    """Return a matplotlib figure of a grid: one metric's means (None: the first), differences, why cells are empty.

    Colours show differences to the reference where there is one: beside columns of other data, differences between rows
    would otherwise not be seen. Blue is more, red less; the strongest colour is the end furthest from 0 of all
    intervals, so that only clear differences are strong. Without a reference colours show the means.

    Raises:
        UsageError: the table is no grid, or has no such metric.
        ImportError: matplotlib is not installed.
    """
    import numpy as np
    from matplotlib.figure import Figure

    name, lines = metric or summary.metrics[0], grid_of(summary)
    if name not in summary.metrics:
        expected = ", ".join(summary.metrics)
        raise UsageError("The table has no such metric.", where=summary.title, got=name, expected=expected)
    (row_name, rows), (column_name, columns) = summary.axes.items()
    width, height = 1.9 + 1.25 * len(columns), 1.7 + 0.62 * len(rows)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor(LOST)
    contrasts = [line.contrasts[name] for line in lines.values() if name in line.contrasts]
    cells = [[lines.get((row, column)) for column in columns] for row in rows]
    values = [[_value(line, name, compared=bool(contrasts)) for line in row] for row in cells]
    shown = np.ma.masked_invalid(np.array(values, np.float64))  # (rows, columns)
    image: Any = axes.imshow(shown, cmap="RdBu" if contrasts else "viridis", aspect="auto")
    if contrasts:
        ends = [abs(end) for one in contrasts for end in (one.difference, one.low, one.high) if end is not None]
        image.set_clim(-(max(ends) or 1.0), max(ends) or 1.0)
    for y, row in enumerate(cells):
        for x, line in enumerate(row):
            colour, size = "#555555", 6.5
            if line is not None and name in line.estimates:
                red, green, blue, _ = image.cmap(image.norm(values[y][x]))
                colour, size = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white", 8.0
            axes.text(x, y, _text(line, name), ha="center", va="center", color=colour, fontsize=size)
    axes.set_xticks(range(len(columns)), columns, rotation=25, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlabel=column_name, ylabel=row_name)
    axes.tick_params(length=0)
    if shown.count():
        figure.colorbar(image, ax=axes, label=f"{name}: difference to {summary.reference}" if contrasts else name)
    figure.suptitle(textwrap.fill(summary.title or name, int(width / LETTER)), fontsize=11, x=0.01, ha="left")
    return figure


def _value(line: Line | None, name: str, *, compared: bool) -> float:
    if line is None or name not in line.estimates:
        return float("nan")
    if not compared:
        return line.estimates[name].mean
    return line.contrasts[name].difference if name in line.contrasts else 0.0


def _text(line: Line | None, name: str) -> str:
    if line is None or name not in line.estimates:
        reason = textwrap.wrap("not in the table" if line is None else line.error or "no such metric", _WIDEST)
        return "\n".join(reason[:3]) + ("…" if len(reason) > 3 else "")
    estimate, contrast = line.estimates[name], line.contrasts.get(name)
    text = number(estimate.mean) + ("" if estimate.half is None else f" ± {number(estimate.half)}")
    if line.kind == "reference":
        return f"{text}\nreference"
    return text if contrast is None else f"{text}\n{signed(contrast.difference)}{star(contrast)}"
