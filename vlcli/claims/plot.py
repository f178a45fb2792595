"""Draws the paired difference of every claim of a paper, positive where it agrees with the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlcli.claims.verdicts import Judged
from vlcli.files import written

COLOURS = {"reproduced": "#2b5c9e", "opposite": "#c2571a", "undecided": "#777777"}
MARKS = {"reproduced": "o", "opposite": "D", "undecided": "s"}


def plot(judged: Sequence[Judged], file: Path) -> bool:
    """Draws the claims of one paper that have run into an SVG.

    Returns:
        Whether something was drawn: False where no claim has run, or matplotlib is not installed.
    """
    drawn = [one for one in judged if one.word in COLOURS and one.difference is not None]
    if not drawn:
        return False
    try:
        figure = _figure(drawn)
    except ImportError:
        return False
    with written(file) as beside:
        figure.savefig(beside, format="svg", metadata={"Date": None})
    return True


def _figure(drawn: Sequence[Judged]) -> Any:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "claims"
    figure = Figure(figsize=(8.5, 0.3 * len(drawn) + 1.3), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    axes.axvline(0, color="#333333", linewidth=1)
    for row, one in enumerate(drawn):
        difference, colour = one.difference, COLOURS[one.word]
        assert difference is not None
        if difference.low is not None and difference.high is not None:
            ends = [one.sign * difference.low, one.sign * difference.high]
            axes.plot(ends, [row, row], color=colour, linewidth=1.8)
        value = one.sign * difference.difference
        axes.plot([value], [row], MARKS[one.word], color=colour, markersize=6, linestyle="", label=one.word)
    axes.set_yticks(range(len(drawn)), [one.registered.claim.id for one in drawn], fontsize=8)
    axes.set_ylim(len(drawn) - 0.5, -0.5)
    axes.set_xlabel("difference in the published direction, with its 95 % interval")
    axes.grid(axis="x", alpha=0.25)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    named = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(named.values(), named, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure
