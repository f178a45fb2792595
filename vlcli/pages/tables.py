"""The table of the runs on a page: each row with its interval on a line, published numbers, and differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vlcli.errors import VlcliError
from vlcli.pages.charts import Span
from vlcli.tables.cells import number, show_contrast, show_estimate
from vlcli.tables.results import TableResults
from vlcli.tables.summary import Line, Summary, summarise
from vlcli.tools.run_folder import RunFacts
from vlcli.tools.run_rows import layout_of
from vlcli.tools.run_tables import table_of

MOST_METRICS = 3
"""Metrics of a table that are shown, each with its own plot."""
ROOM = 0.08


@dataclass(frozen=True)
class Mark:
    """Where numbers lie on a line, in percent of its length; None where there is none."""

    at: float | None = None
    low: float | None = None
    high: float | None = None
    published: float | None = None


@dataclass(frozen=True)
class Shown:
    """One row of a table.

    Attributes:
        label: of the row.
        kind: ``row``, ``reference`` or ``baseline``.
        measured: mean and interval as text.
        published: as text.
        difference: to the reference row, as text.
        seeds: how many.
        error: why numbers are missing.
        mark: on the line.
    """

    label: str
    kind: str
    measured: str
    published: str
    difference: str
    seeds: int
    error: str
    mark: Mark


@dataclass
class Panel:
    """One metric of a table.

    Attributes:
        metric: its name.
        ticks: places in percent, and what they stand for.
        rows: the table's lines.
        baselines: places of the baselines, in percent.
        published: whether a row has a published number.
        differences: whether a row is compared with another.
    """

    metric: str
    ticks: list[tuple[float, str]]
    rows: list[Shown]
    baselines: list[float]
    published: bool
    differences: bool


@dataclass
class PageTable:
    """A table as the page shows it.

    Attributes:
        title: of the table.
        panels: one per metric.
        notes: what the intervals are over.
    """

    title: str
    panels: list[Panel] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def table_on_page(runs: Sequence[RunFacts]) -> PageTable | None:
    """The table that the runs' recipes ask for, or that seeds of one recipe make; None where there is neither."""
    if not any(layout_of(run) is not None for run in runs):
        return None
    try:
        found = table_of(runs)
        return page_table(found) if any(row.done for row in found.rows) else None
    except VlcliError:  # a pattern of the recipe that no metric has: the scores are shown all the same
        return None


def page_table(found: TableResults, most: int = MOST_METRICS) -> PageTable:
    """A table as the page shows it.

    Args:
        found: the table.
        most: metrics that are shown.

    Raises:
        UsageError: the table cannot be summarised.
    """
    summary = summarise(found)
    panels = [_panel(summary, name) for name in summary.metrics[:most]]
    return PageTable(summary.title, panels, [f"{note[0].upper()}{note[1:]}." for note in summary.notes])


def _panel(summary: Summary, name: str) -> Panel:
    span, rows = _span(summary, name), []
    for line in summary.lines:
        if line.kind == "baseline" and name not in line.estimates:
            continue
        found, printed = line.estimates.get(name), line.published.get(name)
        ends = (None, None) if found is None else (span.at(found.low), span.at(found.high))
        mark = Mark(None if found is None else span.at(found.mean), *ends, span.at(printed.value) if printed else None)
        rows.append(_shown(line, name, mark))
    baselines = [row.mark.at for row in rows if row.kind == "baseline" and row.mark.at is not None]
    compared = any(name in line.contrasts for line in summary.lines)
    return Panel(name, span.ticks, rows, baselines, any(name in line.published for line in summary.lines), compared)


def _shown(line: Line, name: str, mark: Mark) -> Shown:
    published = line.published.get(name)
    spread = "" if published is None or published.spread is None else f" ± {number(published.spread)}"
    return Shown(
        line.label,
        line.kind,
        show_estimate(line.estimates.get(name)),
        "" if published is None else number(published.value) + spread,
        show_contrast(line.contrasts[name]) if name in line.contrasts else "",
        line.seeds,
        line.error,
        mark,
    )


def _span(summary: Summary, name: str) -> Span:
    """From the lowest to the highest number of a metric, with some room beside."""
    values = [line.published[name].value for line in summary.lines if name in line.published]
    for line in summary.lines:
        if name in line.estimates:
            one = line.estimates[name]
            values += [value for value in (one.mean, one.low, one.high) if value is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = ROOM * (high - low) or 0.05
    return Span(low - room, high + room)
