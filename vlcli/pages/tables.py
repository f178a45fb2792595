"""Shows a table on a page: each row with its interval on a line, published numbers, and differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from vlcli.errors import VlcliError
from vlcli.files import write_text
from vlcli.pages.album import Thumbnails
from vlcli.pages.charts import Span
from vlcli.pages.examples import EXAMPLE_SECTIONS, ReportOptions, examples_of
from vlcli.pages.page import filled, refuse_other
from vlcli.pages.scores import groups_of
from vlcli.progress import Progress
from vlcli.tables.cells import number, show_contrast, show_estimate
from vlcli.tables.results import TableResults
from vlcli.tables.summary import Summary, summarise
from vlcli.tools.run_folder import RunFacts, read_stage
from vlcli.tools.run_rows import layout_of
from vlcli.tools.run_tables import table_of

MOST_METRICS, MOST_ON_OWN_PAGE = 3, 20
"""Metrics that are shown, each with its plot, in a report and on a page of the table alone."""
ROOM = 0.08


class Mark(NamedTuple):
    """Places on a line, in percent of its length; None where there is no number."""

    at: float | None = None
    low: float | None = None
    high: float | None = None
    published: float | None = None


class Panel(NamedTuple):
    """One metric: ticks (place, label), rows, places of baselines, and whether any row has the two further columns."""

    metric: str
    ticks: list[tuple[float, str]]
    rows: list[dict[str, Any]]
    baselines: list[float]
    published: bool
    differences: bool


@dataclass
class PageTable:
    """A table as the template shows it."""

    title: str
    panels: list[Panel]
    notes: list[str]


def write_table(table: TableResults, file: Path, options: ReportOptions, progress: Progress) -> Path:
    """Write the page of a table; a file that vlcli did not write is not replaced.

    Examples are those of the first finished run of each row: what every row answered, and attention of the first row
    whose model records it.

    Raises:
        UsageError: another file lies there; the table cannot be summarised.
    """
    refuse_other(file)
    shown = page_table(table, MOST_ON_OWN_PAGE)
    title, shown.title = shown.title or "Table", ""
    seeds = len({run.seed for row in table.rows for run in row.runs})
    done, runs = sum(len(row.done) for row in table.rows), sum(len(row.runs) for row in table.rows)
    album = Thumbnails()
    examples = examples_of(groups_of(_first_runs(table)), album, options, progress)
    page = {
        "title": title,
        "about": table.about,
        "facts": [f"{len(table.rows)} rows", f"{seeds} seed{'s' * (seeds > 1)}", f"{done} of {runs} runs done"],
        "sections": [("table", "Table"), *(section for key, section in EXAMPLE_SECTIONS.items() if examples[key])],
        "table": shown,
        "faults": [*(f"{row.label}: {row.error}" for row in table.rows if row.error), *album.told],
        **examples,
    }
    return write_text(file, filled("table.html", page))


def _first_runs(table: TableResults) -> list[RunFacts]:
    runs = []
    for row in table.rows:
        folders = [folder for one in row.done[:1] for folder in (one.evaluation, *one.evaluations.values()) if folder]
        stages = [read_stage(folder) for folder in dict.fromkeys(folders) if folder.is_dir()]
        if stages:
            runs.append(RunFacts(stages[0].folder.parent, row.label, {}, {stage.name: stage for stage in stages}))
    return runs


def table_on_page(runs: Sequence[RunFacts]) -> PageTable | None:
    """Return the table that the runs' recipes ask for, or that seeds of one recipe make; None without either."""
    if not any(layout_of(run) is not None for run in runs):
        return None
    try:
        table = table_of(runs)
        return page_table(table) if any(row.done for row in table.rows) else None
    except VlcliError:  # a pattern of the recipe that no metric has: the scores are shown all the same
        return None


def page_table(table: TableResults, most: int = MOST_METRICS) -> PageTable:
    """Return a table with at most so many metrics; UsageError: the table cannot be summarised."""
    summary = summarise(table)
    panels = [_panel(summary, name) for name in summary.metrics[:most]]
    return PageTable(summary.title, panels, [f"{note[0].upper()}{note[1:]}." for note in summary.notes])


def _panel(summary: Summary, name: str) -> Panel:
    span, rows = _span(summary, name), []
    lines = [line for line in summary.lines if line.kind != "baseline" or name in line.estimates]
    for line in lines:
        estimate, published = line.estimates.get(name), line.published.get(name)
        measured = (None, None, None) if estimate is None else (estimate.mean, estimate.low, estimate.high)
        row = {key: getattr(line, key) for key in ("label", "kind", "seeds", "error")} | {"published": ""}
        row["mark"] = Mark(*map(span.at, (*measured, None if published is None else published.value)))
        row["measured"] = show_estimate(estimate)
        if published is not None:
            spread = "" if published.spread is None else f" ± {number(published.spread)}"
            split = f" ({published.split})" if published.split else ""
            row["published"] = number(published.value) + spread + split
        row["difference"] = show_contrast(line.contrasts[name]) if name in line.contrasts else ""
        rows.append(row)
    baselines = [row["mark"].at for row in rows if row["kind"] == "baseline" and row["mark"].at is not None]
    printed = any(name in line.published for line in lines)
    compared = any(name in line.contrasts for line in lines)
    return Panel(name, span.ticks, rows, baselines, printed, compared)


def _span(summary: Summary, name: str) -> Span:
    values = [line.published[name].value for line in summary.lines if name in line.published]
    for one in (line.estimates[name] for line in summary.lines if name in line.estimates):
        values += [value for value in (one.mean, one.low, one.high) if value is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = ROOM * (high - low) or 0.05
    return Span(low - room, high + room)
