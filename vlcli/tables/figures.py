"""Draws the forest plot of a table: each row's mean with its interval, beside the published number."""

import math
from typing import Any

from vlcli.tables.cells import number, shorter, star
from vlcli.tables.summary import Line, Summary

_MOST_PANELS = 4  # metrics that are drawn side by side; of a table with more, the first
# Letters of a row's label; longer ones are cut
LONGEST = 44
MEASURED, PUBLISHED, REFERENCE, LOST = "#2b5c9e", "#c2571a", "#555555", "#a02020"
BASELINES = ("#6a6a6a", "#2e7d4f")
_ROW, _WIDTH = 0.34, 3.6


def forest(summary: Summary) -> Any:
    """Return a matplotlib figure: one panel per metric, one line per row; ImportError: there is no matplotlib.

    Dots are measured means with their 95 % intervals, diamonds published numbers, the shaded band the interval of the
    reference row, dotted lines the baselines. A row that failed has its reason in place of a dot.
    """
    from matplotlib.figure import Figure

    names, rows = summary.metrics[:_MOST_PANELS], summary.rows
    labels = [shorter(" ".join(line.label.split()), LONGEST) for line in rows]
    width = 0.085 * max(map(len, labels)) + _WIDTH * len(names) + 0.3
    figure = Figure(figsize=(max(width, 6.5), _ROW * len(rows) + 1.7), layout="constrained")
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for name, axes in zip(names, panels, strict=True):
        _panel(axes, summary, name, reasons=axes is panels[0])
    panels[0].set_yticks(range(len(rows)), labels)
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    for tick, line in zip(panels[0].get_yticklabels(), rows, strict=True):
        tick.set_fontweight("bold" if line.kind == "reference" else "normal")
    if summary.title:
        figure.suptitle(summary.title, fontsize=11, x=0.01, ha="left")
    handles = {label: one for axes in panels for one, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(handles) > 1:
        columns = len(handles) if figure.get_figwidth() > 2 * len(handles) else 2
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
    return figure


def _panel(axes: Any, summary: Summary, name: str, reasons: bool) -> None:
    baselines = [line for line in summary.lines if line.kind == "baseline" and name in line.estimates]
    for count, line in enumerate(baselines):
        colour = BASELINES[count % len(BASELINES)]
        axes.axvline(line.estimates[name].mean, color=colour, linestyle=":", linewidth=1.4, label=line.label, zorder=1)
    reference = next((line.estimates.get(name) for line in summary.rows if line.kind == "reference"), None)
    if reference is not None and reference.low is not None:
        axes.axvspan(reference.low, reference.high, color=MEASURED, alpha=0.08, linewidth=0, zorder=0)
    for height, line in enumerate(summary.rows):
        _row(axes, line, name, height, reasons)
    axes.set_xlabel(name)
    axes.grid(axis="x", alpha=0.25)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _row(axes: Any, line: Line, name: str, height: int, reasons: bool) -> None:
    """Draw a row, with the mean at the right edge, and a star at differences that are sure; or why there is none."""
    estimate, published = line.estimates.get(name), line.published.get(name)
    if estimate is not None:
        colour, label = MEASURED, "measured, 95 % interval"
        if line.kind == "reference":
            colour, label = REFERENCE, "measured, reference row"
        if estimate.low is not None and estimate.high is not None:
            axes.plot([estimate.low, estimate.high], [height, height], color=colour, linewidth=1.8, zorder=3)
        axes.plot([estimate.mean], [height], "o", color=colour, markersize=6, zorder=4, label=label)
    if published is not None:
        value, below, style = published.value, height + 0.24, {"color": PUBLISHED, "fillstyle": "none"}
        if published.spread is not None:
            ends = [value - published.spread, value + published.spread]
            axes.plot(ends, [below, below], color=PUBLISHED, linewidth=1.2, zorder=3)
        axes.plot([value], [below], "D", markersize=5, label="published", zorder=4, **style)
    options: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8}
    if estimate is not None and math.isfinite(estimate.mean):
        axes.text(1.01, height, number(estimate.mean) + star(line.contrasts.get(name)), **options)
    elif line.error and reasons:
        axes.text(0.02, height, shorter(line.error, LONGEST), color=LOST, style="italic", **options)
