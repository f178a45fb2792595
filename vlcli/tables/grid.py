"""A table with two axes: every encoding with every model, for instance."""

from __future__ import annotations

from dataclasses import dataclass

from vlcli.errors import UsageError
from vlcli.tables.cells import Block, decided, show_estimate
from vlcli.tables.summary import Line, Summary


@dataclass(frozen=True)
class Grid:
    """The cells of a table with two axes.

    Attributes:
        rows: values of the first axis, in order.
        columns: values of the second axis.
        names: of the axes.
        lines: the table's lines by their cell; a cell that the table lacks is absent.
    """

    rows: list[str]
    columns: list[str]
    names: tuple[str, str]
    lines: dict[tuple[str, str], Line]


def grid_of(summary: Summary) -> Grid:
    """The cells of a table with two axes.

    Raises:
        UsageError: the table has another number of axes.
    """
    if len(summary.axes) != 2:
        expected = "rows that are crossed: rows: {AXIS: {...}, AXIS: {...}}"
        got = f"{len(summary.axes)} axes"
        raise UsageError("The table is no grid of two axes.", where=summary.title, got=got, expected=expected)
    first, second = summary.axes
    lines = {(line.cell[0], line.cell[1]): line for line in summary.rows if len(line.cell) == 2}
    return Grid(summary.axes[first], summary.axes[second], (first, second), lines)


def matrix(summary: Summary, metric: str) -> Block:
    """One metric as a matrix: rows of the first axis, columns of the second; a lost cell refers to its reason."""
    grid = grid_of(summary)
    made = Block(f"{metric}: {grid.names[0]} x {grid.names[1]}", ["", *grid.columns])
    reasons: dict[str, str] = {}
    for row in grid.rows:
        cells = [_text(grid.lines.get((row, column)), metric, reasons) for column in grid.columns]
        made.rows.append(("row", [row, *cells]))
    made.notes = [f"({mark}) {reason}" for reason, mark in reasons.items()]
    return made


def _text(line: Line | None, metric: str, reasons: dict[str, str]) -> str:
    if line is None:
        return "-"
    found = line.estimates.get(metric)
    if found is None:
        return f"- ({reasons.setdefault(line.error or 'no such metric', str(len(reasons) + 1))})"
    star = " *" if metric in line.contrasts and decided(line.contrasts[metric]) else ""
    return show_estimate(found) + star
