"""Curves over training steps as a PNG (needs the extra ``plots``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Series = Mapping[str, Sequence[tuple[float, float]]]
"""By label: (step, value) pairs."""


def loss_series(rows: Sequence[Mapping[str, Any]], prefix: str = "") -> dict[str, list[tuple[float, float]]]:
    """The losses of a training log (``step``, ``loss``, ``loss/NAME`` per row), labelled behind ``prefix``."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for name, value in row.items():
            if name == "loss" or name.startswith("loss/"):
                found.setdefault(prefix + name.removeprefix("loss/"), []).append((row["step"], value))
    return found


def draw_curves(series: Series, path: Path, *, value: str = "loss", title: str = "") -> Path | None:
    """Draw every series into ``path``; None where there is nothing to draw or matplotlib is not installed."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    if not any(series.values()):
        return None
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xlabel="step", ylabel=value, title=title)
    for label, points in series.items():
        axes.plot([step for step, _ in points], [height for _, height in points], label=label, linewidth=1.5)
    axes.legend()
    axes.grid(alpha=0.3)
    beside = path.with_name(f".{path.name}.part")
    figure.savefig(beside, dpi=110, format="png")
    beside.replace(path)
    return path
