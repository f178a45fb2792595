"""The forest plot of a table: each row's mean with its interval, beside what the paper printed."""

from __future__ import annotations

import math
from typing import Any

from vlcli.tables.cells import decided, number, shorter
from vlcli.tables.summary import Line, Summary

MOST_PANELS = 4
"""Metrics that are drawn side by side; of a table with more, the first."""
LONGEST = 44
"""Letters of a row's label; longer ones are cut."""
MEASURED, PUBLISHED, REFERENCE, LOST = "#2b5c9e", "#c2571a", "#555555", "#a02020"
BASELINES = ("#6a6a6a", "#2e7d4f")
_ROW, _WIDTH = 0.34, 3.6


def forest(summary: Summary) -> Any:
    """A matplotlib figure: one panel per metric, one line per row.

    Dots are measured means with their 95 % intervals, diamonds what the paper printed, the shaded band the interval of
    the reference row, dotted lines the baselines. A row that failed has its reason in place of a dot.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names, rows = summary.metrics[:MOST_PANELS], summary.rows
    longest = max(len(_label(line)) for line in rows)
    width = 0.085 * longest + _WIDTH * len(names) + 0.3
    figure = Figure(figsize=(max(width, 6.5), _ROW * len(rows) + 1.7), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for name, axes in zip(names, panels, strict=True):
        _panel(axes, summary, name, reasons=axes is panels[0])
    panels[0].set_yticks(range(len(rows)), [_label(line) for line in rows])
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    for tick, line in zip(panels[0].get_yticklabels(), rows, strict=True):
        tick.set_fontweight("bold" if line.kind == "reference" else "normal")
    if summary.title:
        figure.suptitle(summary.title, fontsize=11, x=0.01, ha="left")
    handles = {label: one for axes in panels for one, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(handles) > 1:
        columns = len(handles) if figure.get_figwidth() > 2 * len(handles) else 2
        shown = (handles.values(), handles)
        figure.legend(*shown, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
    return figure


def _label(line: Line) -> str:
    return shorter(" ".join(line.label.split()), LONGEST)


def _panel(axes: Any, summary: Summary, name: str, reasons: bool) -> None:
    _baselines(axes, summary, name)
    _reference(axes, summary, name)
    for place, line in enumerate(summary.rows):
        _measured(axes, line, name, place)
        _published(axes, line, name, place)
    _annotate(axes, summary, name, reasons)
    axes.set_xlabel(name)
    axes.grid(axis="x", alpha=0.25)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _baselines(axes: Any, summary: Summary, name: str) -> None:
    lines = [line for line in summary.lines if line.kind == "baseline" and name in line.estimates]
    for number_, line in enumerate(lines):
        colour = BASELINES[number_ % len(BASELINES)]
        axes.axvline(line.estimates[name].mean, color=colour, linestyle=":", linewidth=1.4, label=line.label, zorder=1)


def _reference(axes: Any, summary: Summary, name: str) -> None:
    line = next((line for line in summary.rows if line.kind == "reference"), None)
    found = None if line is None else line.estimates.get(name)
    if found is not None and found.low is not None:
        axes.axvspan(found.low, found.high, color=MEASURED, alpha=0.08, linewidth=0, zorder=0)


def _measured(axes: Any, line: Line, name: str, place: int) -> None:
    found = line.estimates.get(name)
    if found is None:
        return
    colour = REFERENCE if line.kind == "reference" else MEASURED
    if found.low is not None and found.high is not None:
        axes.plot([found.low, found.high], [place, place], color=colour, linewidth=1.8, zorder=3)
    label = "measured, 95 % interval" if line.kind != "reference" else "measured, reference row"
    axes.plot([found.mean], [place], "o", color=colour, markersize=6, zorder=4, linestyle="", label=label)


def _published(axes: Any, line: Line, name: str, place: int) -> None:
    found = line.published.get(name)
    if found is None:
        return
    height = place + 0.24
    if found.spread is not None:
        ends = [found.value - found.spread, found.value + found.spread]
        axes.plot(ends, [height, height], color=PUBLISHED, linewidth=1.2, zorder=3)
    axes.plot(
        [found.value], [height], "D", color=PUBLISHED, markersize=5, fillstyle="none", label="published", zorder=4
    )


def _annotate(axes: Any, summary: Summary, name: str, reasons: bool) -> None:
    """The means at the right edge, with a star at differences that are sure; the reason where there is none."""
    for place, line in enumerate(summary.rows):
        found, contrast = line.estimates.get(name), line.contrasts.get(name)
        if found is not None and math.isfinite(found.mean):
            text = number(found.mean) + (" *" if contrast is not None and decided(contrast) else "")
            where = {"x": 1.01, "y": place, "s": text, "transform": axes.get_yaxis_transform()}
            axes.text(**where, va="center", fontsize=8)
        elif line.error and reasons:
            reason = shorter(line.error, LONGEST)
            where = {"x": 0.02, "y": place, "s": reason, "transform": axes.get_yaxis_transform()}
            axes.text(**where, va="center", fontsize=8, color=LOST, style="italic")
