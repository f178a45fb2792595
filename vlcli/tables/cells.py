"""Numbers of tables as text, and the blocks of cells that tables are printed as."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from vlcli.tables.statistics import ALPHA, Contrast, Estimate

EMPTY = "-"
LONGEST = 100
"""Letters of the reason that a printed row shows; CSV and JSON have all of them."""


@dataclass
class Block:
    """Rows of cells that share columns.

    Attributes:
        title: above them.
        columns: their heads; the first is that of the labels.
        rows: kind of the line (``row``, ``reference`` or ``baseline``) and its cells.
        notes: below the rows.
    """

    title: str
    columns: list[str]
    rows: list[tuple[str, list[str]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def show_estimate(found: Estimate | None) -> str:
    """``0.812 ± 0.015``; with both ends of the interval where it is not symmetric."""
    if found is None:
        return EMPTY
    if found.low is None or found.high is None or found.half is None:
        return number(found.mean)
    if abs(found.mean - found.low - found.half) <= 0.05 * found.half:
        return f"{number(found.mean)} ± {number(found.half)}"
    return f"{number(found.mean)} ({number(found.low)} to {number(found.high)})"


def show_contrast(found: Contrast | None) -> str:
    """``+0.012 (-0.010 to +0.034)``, with a star where it holds after Holm's correction."""
    if found is None:
        return EMPTY
    star = " *" if decided(found) else ""
    between = "" if found.low is None or found.high is None else f" ({signed(found.low)} to {signed(found.high)})"
    return f"{signed(found.difference)}{between}{star}"


def decided(found: Contrast) -> bool:
    """Whether the difference is sure after Holm's correction."""
    return found.holm is not None and found.holm < ALPHA


def shorter(text: str, most: int = LONGEST) -> str:
    """A text of at most so many letters, with dots where it is cut."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def number(value: float) -> str:
    """Three digits behind the point for fractions, fewer for large numbers."""
    if not math.isfinite(value):
        return str(value)
    digits = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1
    return f"{value:.{digits}f}"


def signed(value: float) -> str:
    """The number with its sign."""
    return ("+" if value >= 0 else "") + number(value)
