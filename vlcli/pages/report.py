"""Writes the report of runs: one HTML file with pictures and scripts inside, and no request to anywhere."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlcli.files import write_text
from vlcli.pages.album import Thumbnails
from vlcli.pages.charts import COLOURS
from vlcli.pages.curves import curves_of
from vlcli.pages.examples import EXAMPLE_SECTIONS, ReportOptions, examples_of
from vlcli.pages.page import filled, refuse_other
from vlcli.pages.scores import Group, groups_of
from vlcli.pages.summary import between, comparison_of, duration, fraction, summary_of
from vlcli.pages.tables import table_on_page
from vlcli.progress import Progress, Silent
from vlcli.tools.differences import compare_runs
from vlcli.tools.run_folder import RunFacts, read_run

__all__ = ["ReportOptions", "render", "write_report"]

_MOST_SHOWN = 16  # metrics of a group that are shown unfolded
# What the folder of a run with overrides ends in.
_HASH = re.compile(r"-[0-9a-f]{8}$")
_SECTIONS = {
    "table": ("table", "Table"),
    "scores": ("scores", "Scores"),
    "comparison": ("differences", "Differences"),
    **EXAMPLE_SECTIONS,
    "curves": ("curves", "Training"),
}


def write_report(
    folders: Sequence[Path], file: Path, options: ReportOptions | None = None, progress: Progress | None = None
) -> Path:
    """Write the page of one run or several; UsageError: a file that vlcli did not write lies there."""
    refuse_other(file)
    html = render([read_run(folder) for folder in folders], options or ReportOptions(), progress or Silent())
    return write_text(file, html)


def render(runs: Sequence[RunFacts], options: ReportOptions, progress: Progress) -> str:
    """Return the page as text."""
    groups, album = groups_of(runs), Thumbnails()
    several = len(runs) > 1
    together = f"{len(runs)} runs: {', '.join(run.label for run in runs)}"
    shown: dict[str, Any] = {
        "title": together if several else _HASH.sub("", runs[0].label),
        "about": "" if several else str(runs[0].recipe.get("about", "")),
        "facts": [f"{len(runs)} runs side by side"] if several else _facts(runs[0]),
        "runs": [summary_of(run, groups) for run in runs],
        "table": table_on_page(runs),
        "scores": [_score_table(group) for group in groups],
        "comparison": comparison_of(compare_runs(runs)) if several else None,
        **examples_of(groups, album, options, progress),
        "curves": curves_of(runs),
    }
    # files of runs are read above, and what cannot be read of them is known only now
    faults = [f"{run.label}: {line}" if several else line for run in runs for line in _missing(run)]
    faults += album.told
    sections = [section for key, section in _SECTIONS.items() if shown[key]]
    first = ("summary", "Runs" if several else "Result")
    shown["sections"] = [first, *sections, ("stages", "Stages"), ("setup", "Setup")]
    return filled("report.html", {**shown, "faults": list(dict.fromkeys(faults))})


def _missing(run: RunFacts) -> list[str]:
    words = {"stopped": "stopped before the end", "working": "still running", "skipped": "passed over"}
    states: dict[str, list[str]] = {}
    for stage in run.stages.values():
        states.setdefault(stage.state, []).append(stage.name)
    lines = [f"{words.get(s, s).capitalize()}: {', '.join(names)}." for s, names in states.items() if s != "done"]
    return [*run.every_fault(), *lines, *([] if run.stages else ["The folder holds no stage."])]


def _facts(run: RunFacts) -> list[str]:
    records = [stage.record for stage in run.stages.values() if stage.record is not None]
    done = sum(stage.state == "done" for stage in run.stages.values())
    work = duration(sum(float(record.seconds) for record in records))
    started = min((record.started for record in records if record.started), default="")
    seed = run.recipe.get("seed")
    facts = [run.state, f"{done} of {len(run.stages)} stages done", f"{work} of work"]
    facts += [f"begun {started[:16].replace('T', ' ')} UTC"] if started else []
    return facts + ([f"seed {seed}"] if seed is not None else [])


def _score_table(group: Group) -> dict[str, Any]:
    kinds = dict.fromkeys(row.by for column in group.columns for row in column.measured.values() if row.by)
    tops = {group.span(name).high for name in group.metrics}
    return {
        "title": group.title,
        "columns": group.columns,
        "parts": _parts([_score_row(group, name) for name in group.metrics]),
        "baselines": bool(kinds),
        "baseline_name": " or ".join(kinds),
        "top": f"{tops.pop():g}" if len(tops) == 1 else "",
    }


def _parts(rows: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the rows, those by kind or class apart where they are many."""
    kinds = [row for row in rows if "/" in row["name"]] if len(rows) > _MOST_SHOWN else []
    whole = [row for row in rows if row not in kinds]
    return [("", whole), (f"{len(kinds)} more by kind", kinds)] if kinds and whole else [("", rows)]


def _score_row(group: Group, name: str) -> dict[str, Any]:
    span, cells, lanes = group.span(name), [], []
    rows = [(column.label, row) for column in group.columns if (row := column.measured.get(name)) is not None]
    best = max(row.value for _, row in rows) if len(rows) > 1 else None
    baselines = [fraction(row.baseline) for _, row in rows if row.baseline is not None]
    for column in group.columns:
        row = column.measured.get(name)
        lane = {key: span.at(getattr(row, key, None)) for key in ("low", "high", "baseline")}
        lanes.append({**lane, "at": span.at(getattr(row, "value", None)), "colour": column.number % COLOURS})
        cells.append(row and {"value": fraction(row.value), "between": between(row), "best": row.value == best})
    return {
        "name": name,
        "main": name == group.headline,
        "cells": cells,
        "lanes": lanes,
        "words": "; ".join(f"{label} {fraction(row.value)}" for label, row in rows),
        "baseline": ", ".join(dict.fromkeys(baselines)),
    }
