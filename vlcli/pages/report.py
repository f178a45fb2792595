"""The report of runs: one HTML file that shows them, with pictures and scripts inside, and no request to anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlcli.files import write_text
from vlcli.pages.album import Thumbnails
from vlcli.pages.charts import COLOURS
from vlcli.pages.curves import curves_of
from vlcli.pages.page import filled, refuse_other
from vlcli.pages.samples import Samples, samples_of
from vlcli.pages.scores import Column, Group, groups_of
from vlcli.pages.summary import between, comparison_of, duration, fraction, summary_of
from vlcli.pages.tables import table_on_page
from vlcli.progress import Progress, Silent
from vlcli.tools.differences import compare_runs
from vlcli.tools.run_folder import RunFacts, read_run

if TYPE_CHECKING:
    from vlcli.pages.looks import Looks

SAMPLES = 36
"""Samples of each group of evaluate stages."""
MODELS = 3
"""Models whose attention is shown, over all runs."""


@dataclass(frozen=True)
class ReportOptions:
    """What a report holds.

    Attributes:
        samples: of each group of evaluate stages; 0 leaves pictures out.
        model: whether models are loaded for their attention.
        device: where they compute.
    """

    samples: int = SAMPLES
    model: bool = True
    device: str = "auto"


def write_report(
    folders: Sequence[Path], file: Path, options: ReportOptions | None = None, progress: Progress | None = None
) -> Path:
    """Write the page of one run or several.

    Args:
        folders: of the runs.
        file: the page; one that vlcli did not write is not replaced.
        options: what it holds.
        progress: where to report.

    Raises:
        UsageError: another file lies there.
    """
    refuse_other(file)
    html = render([read_run(folder) for folder in folders], options or ReportOptions(), progress or Silent())
    return write_text(file, html)


def render(runs: Sequence[RunFacts], options: ReportOptions, progress: Progress) -> str:
    """The page as text."""
    groups, album = groups_of(runs), Thumbnails()
    samples = _samples(groups, album, options, progress)
    looks, notes = _looks(samples, options, progress, len(runs))
    curves = curves_of(runs)
    comparison = comparison_of(compare_runs(runs)) if len(runs) > 1 else None
    faults = [f"{run.label}: {line}" if len(runs) > 1 else line for run in runs for line in _missing(run)]
    faults += list(album.faults)[:10]
    faults += ["Some pictures were left out: the page would be too large."] if album.full else []
    title = runs[0].label if len(runs) == 1 else f"{len(runs)} runs: {', '.join(run.label for run in runs)}"
    shown: dict[str, Any] = {
        "title": title,
        "about": str(runs[0].recipe.get("about", "")) if len(runs) == 1 else "",
        "facts": _facts(runs),
        "runs": [summary_of(run, groups) for run in runs],
        "table": table_on_page(runs),
        "scores": [_score_table(group) for group in groups],
        "comparison": comparison,
        "samples": samples,
        "looks": [{"title": each.title, "examples": [look.as_dict() for look in each.examples]} for each in looks],
        "look_notes": notes,
        "curves": curves,
        "thumbnails": album.all,
        "faults": list(dict.fromkeys(faults)),
    }
    shown["sections"] = _sections(shown)
    return filled("report.html", shown)


def _samples(groups: Sequence[Group], album: Thumbnails, options: ReportOptions, progress: Progress) -> list[Samples]:
    found = []
    with progress.task("samples", len(groups), "stages") as bar:
        for group in groups:
            made = samples_of(group, options.samples, album, progress, options.device)
            found += [] if made is None else [made]
            bar.advance()
    return found


def _looks(
    samples: Sequence[Samples], options: ReportOptions, progress: Progress, runs: int
) -> tuple[list[Looks], list[str]]:
    """Models that were looked at, and why others were not."""
    if not options.model or not samples:
        return [], []
    from vlcli.pages.looks import MOST_BYTES, looks_of

    made: list[Looks] = []
    notes: list[str] = []
    with progress.task("attention", min(len(samples), MODELS), "models") as bar:
        for part in samples:
            if len(made) < MODELS:
                first = part.group.columns[0]
                title = f"{first.run}: {first.stage.name}" if runs > 1 else first.stage.name
                found = looks_of(part, title, MOST_BYTES // MODELS)
                made += [found] if found.examples else []
                notes += found.notes
                bar.advance()
    return made, notes


def _missing(run: RunFacts) -> list[str]:
    """Faults of a run, and stages that are not done."""
    words = {"stopped": "stopped before the end", "working": "still running", "skipped": "passed over"}
    states: dict[str, list[str]] = {}
    for stage in run.stages.values():
        states.setdefault(stage.state, []).append(stage.name)
    lines = [f"{words.get(s, s).capitalize()}: {', '.join(names)}." for s, names in states.items() if s != "done"]
    return [*run.every_fault(), *lines, *([] if run.stages else ["The folder holds no stage."])]


def _facts(runs: Sequence[RunFacts]) -> list[str]:
    """What stands under the title."""
    if len(runs) > 1:
        return [f"{len(runs)} runs side by side"]
    run, records = runs[0], [stage.record for stage in runs[0].stages.values() if stage.record is not None]
    done = sum(stage.state == "done" for stage in run.stages.values())
    seconds = sum(float(record.seconds) for record in records)
    started = min((record.started for record in records if record.started), default="")
    seed = run.recipe.get("seed")
    found = [run.state, f"{done} of {len(run.stages)} stages done", f"{duration(seconds)} of work"]
    found += [f"begun {started[:16].replace('T', ' ')} UTC"] if started else []
    return found + ([f"seed {seed}"] if seed is not None else [])


def _score_table(group: Group) -> dict[str, Any]:
    rows = [_score_row(group, name) for name in group.metrics]
    kinds = dict.fromkeys(row.by for column in group.columns for row in column.measured.values() if row.by)
    tops = {group.axis(name).high for name in group.metrics}
    return {
        "title": group.title,
        "columns": group.columns,
        "rows": rows,
        "baselines": bool(kinds),
        "baseline_name": " or ".join(kinds),
        "top": f"{tops.pop():g}" if len(tops) == 1 else "",
    }


def _score_row(group: Group, name: str) -> dict[str, Any]:
    axis, best = group.axis(name), group.best(name)
    cells = [_cell(column, name, best) for column in group.columns]
    lanes = [_lane(column, name, axis) for column in group.columns]
    baselines = dict.fromkeys(
        fraction(row.baseline) for c in group.columns if (row := c.measured.get(name)) and row.baseline is not None
    )
    words = "; ".join(f"{c.label} {cell['value']}" for c, cell in zip(group.columns, cells, strict=True) if cell)
    shown = {"name": name, "cells": cells, "lanes": lanes, "words": words, "baseline": ", ".join(baselines)}
    return {**shown, "main": name == group.headline}


def _cell(column: Column, name: str, best: float | None) -> dict[str, Any] | None:
    row = column.measured.get(name)
    if row is None:
        return None
    return {"value": fraction(row.value), "between": between(row), "best": best is not None and row.value == best}


def _lane(column: Column, name: str, axis: Any) -> dict[str, Any]:
    row = column.measured.get(name)
    places = {key: None if row is None else axis.at(getattr(row, key)) for key in ("value", "low", "high", "baseline")}
    at = places.pop("value")
    return {"at": at, "colour": column.number % COLOURS, **places}


def _sections(shown: dict[str, Any]) -> list[tuple[str, str]]:
    """Anchors and names of the sections that have something to show."""
    names = {
        "table": "Table",
        "scores": "Scores",
        "comparison": "Differences",
        "samples": "Samples",
        "looks": "Attention",
        "curves": "Training",
    }
    ids = {"comparison": "differences", "looks": "attention"}
    found = [(ids.get(key, key), name) for key, name in names.items() if shown[key]]
    first = ("summary", "Result" if len(shown["runs"]) == 1 else "Runs")
    return [first, *found, ("stages", "Stages"), ("setup", "Setup")]
