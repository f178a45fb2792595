"""The table of a recipe's rows as one HTML page: every row with its interval on a line, for each of its metrics."""

from __future__ import annotations

from pathlib import Path

from vlcli.files import write_text
from vlcli.pages.page import filled, refuse_other
from vlcli.pages.tables import page_table
from vlcli.tables.results import TableResults

MOST_METRICS = 20
"""Metrics of a table that are shown."""


def write_table(table: TableResults, file: Path) -> Path:
    """Write the page of a table.

    Args:
        table: its rows with what they measured.
        file: the page; one that vlcli did not write is not replaced.

    Raises:
        UsageError: another file lies there; the table cannot be summarised.
    """
    refuse_other(file)
    return write_text(file, render_table(table))


def render_table(table: TableResults) -> str:
    """The page as text."""
    shown = page_table(table, MOST_METRICS)
    title, shown.title = shown.title or "Table", ""
    faults = [f"{row.label}: {row.error}" for row in table.rows if row.error]
    page = {"title": title, "about": table.about, "facts": _facts(table), "sections": [("table", "Table")]}
    return filled("table.html", {**page, "table": shown, "faults": faults})


def _facts(table: TableResults) -> list[str]:
    seeds = {run.seed for row in table.rows for run in row.runs}
    done = sum(len(row.done) for row in table.rows)
    runs = sum(len(row.runs) for row in table.rows)
    return [
        f"{len(table.rows)} rows",
        f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}",
        f"{done} of {runs} runs done",
    ]
