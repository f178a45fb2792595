"""Writes numbers of tables as text, and blocks of cells."""

import math
from dataclasses import dataclass, field

from vlcli.tables.statistics import ALPHA, Contrast, Estimate

EMPTY = "-"
# Letters of the reason that a printed row shows; CSV and JSON have all of them
LONGEST = 100


@dataclass
class Block:
    """Rows of cells under the heads ``columns``, each with its kind: ``row``, ``reference`` or ``baseline``."""

    title: str
    columns: list[str]
    rows: list[tuple[str, list[str]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def show_estimate(estimate: Estimate | None) -> str:
    """Return ``0.812 ± 0.015``; both ends of the interval where it is not symmetric."""
    if estimate is None:
        return EMPTY
    mean, low, high = estimate.mean, estimate.low, estimate.high
    if low is None or high is None:
        return number(mean)
    half = (high - low) / 2
    symmetric = abs(mean - low - half) <= 0.05 * half
    return f"{number(mean)} ± {number(half)}" if symmetric else f"{number(mean)} ({number(low)} to {number(high)})"


def show_contrast(contrast: Contrast | None) -> str:
    """Return ``+0.012 (-0.010 to +0.034)``, with a star where it holds after Holm's correction."""
    if contrast is None:
        return EMPTY
    low, high = contrast.low, contrast.high
    between = "" if low is None or high is None else f" ({signed(low)} to {signed(high)})"
    return f"{signed(contrast.difference)}{between}{star(contrast)}"


def star(contrast: Contrast | None) -> str:
    """Return a star where the difference is sure after Holm's correction."""
    return " *" if contrast is not None and contrast.holm is not None and contrast.holm < ALPHA else ""


def shorter(text: str, most: int = LONGEST) -> str:
    """Return a text of at most so many letters, with dots where it is cut."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def number(value: float) -> str:
    """Return three digits behind the point for fractions, fewer for large numbers."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:.{3 if abs(value) < 10 else 2 if abs(value) < 100 else 1}f}"


def signed(value: float) -> str:
    """Return the number with its sign."""
    return ("+" if value >= 0 else "") + number(value)
