"""Draws curves over training steps as a PNG (needs the extra ``plots``)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlcli.files import written

Series = Mapping[str, Sequence[tuple[float, float]]]
"""By label: (step, value) pairs."""


# The label of series of validation data, which are drawn dashed
VALIDATION = "validation"
MOST_SCORES = 4


def loss_series(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Returns the losses of a training log (``step``, ``loss``, ``loss/NAME`` per row) by label.

    Those of validation data (``eval/loss``) are labelled so. A total that is its only part in every row is left out.
    """
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for name, value in row.items():
            plain = name.removeprefix("eval/")
            if plain == "loss" or plain.startswith("loss/"):
                label = plain.removeprefix("loss/") + (f", {VALIDATION}" if plain != name else "")
                series.setdefault(label, []).append((row["step"], value))
    for end in ("", f", {VALIDATION}"):
        total = f"loss{end}"
        if any(label != total and label.endswith(end) and series[label] == series.get(total) for label in series):
            del series[total]
    return series


def score_series(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Returns the first few scores of the validation data (``eval/NAME``), without those by kind and the losses."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for name, value in row.items():
            plain = name.removeprefix("eval/")
            if plain != name and "/" not in plain and plain != "loss":
                series.setdefault(plain, []).append((row["step"], value))
    return dict(list(series.items())[:MOST_SCORES])


def mean_score(rows: Sequence[Mapping[str, Any]], metric: str) -> float | None:
    """Returns the mean of a validation score (``accuracy``) over a training log; None where the log has none."""
    values = [float(row[name]) for row in rows if (name := f"eval/{metric}") in row]
    return sum(values) / len(values) if values else None


def draw_curves(series: Series, path: Path, scores: Series | None = None) -> Path | None:
    """Draws losses into ``path`` and ``scores`` below them; returns None without points or matplotlib.

    The scale is logarithmic where all losses allow it; points at 0 are then left out.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    if not any(series.values()):
        return None
    below = {label: points for label, points in (scores or {}).items() if points}
    figure = Figure(figsize=(7, 6 if below else 4), layout="constrained")
    ratios = [2, 1] if below else [1]
    panels = figure.subplots(len(ratios), sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
    values = [height for points in series.values() for _, height in points]
    _lines(panels[0], series, "loss", logarithmic=min(values) >= 0 and max(values) > 0)
    if below:
        _lines(panels[1], below, VALIDATION)
    panels[-1].set(xlabel="step")
    with written(path) as beside:
        figure.savefig(beside, dpi=110, format="png")
    return path


def _lines(axes: Any, series: Series, value: str, logarithmic: bool = False) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator

    for label, points in series.items():
        shown = [(step, height) for step, height in points if height > 0 or not logarithmic]
        dashed = label.endswith(VALIDATION)
        look = {"linestyle": "--" if dashed else "-", "marker": "o" if len(shown) == 1 or dashed else ""}
        steps, heights = np.reshape(shown, (-1, 2)).T
        axes.plot(steps, heights, label=label if shown else f"{label} (0)", linewidth=1.5, markersize=3, **look)
    axes.set(ylabel=value)
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # there is no half step
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")
    axes.grid(alpha=0.3)
