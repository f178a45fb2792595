"""``vlcli table``, ``report`` and ``diff``: shows what runs measured, on a page too, and compares them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from vlcli.cli import console, options
from vlcli.cli.guard import RunRequest, requested
from vlcli.cli.listing import published_of
from vlcli.cli.words import number
from vlcli.errors import UsageError
from vlcli.files import write_text
from vlcli.recipe.load import load
from vlcli.recipe.locate import is_recipe
from vlcli.recipe.table import is_table, load_table

if TYPE_CHECKING:
    from vlcli.metrics.rows import Paired
    from vlcli.pages.examples import ReportOptions
    from vlcli.progress import Progress
    from vlcli.tables.summary import Summary
    from vlcli.tools.differences import Comparison


_REPORTED = "Run folders, or their names under runs/; or a table, or results of claims."
_PAGE = "The page; default: report.html in the run's folder, or here for several."
_RUNS = "Runs (folders, or names under runs/), stages (RUN/STAGE), or the table.json of a recipe with rows."


@requested("output", "json_")
def table(
    request: RunRequest,
    runs: Annotated[list[str], Argument(metavar="RUN...", help=_RUNS)],
    form: Annotated[str, Option("--format", help="text, json, csv, latex, markdown or model-index.")] = "text",
    out: Annotated[Path | None, Option("--out", "-o", help="Write to this file instead of stdout.")] = None,
    plot: Annotated[list[Path] | None, Option(help="Draw a forest plot (of a grid, a heat map): .svg or .png.")] = None,
    metric: Annotated[list[str] | None, Option(help="Metrics to show, patterns too ('accuracy/*').")] = None,
    reference: Annotated[str | None, Option(help="Label of the row that the others are compared with.")] = None,
) -> None:
    """Show what runs measured: means, 95 % intervals, published numbers, paired differences to a reference row.

    vlcli table quickstart
    vlcli table quickstart quickstart-1a2b3c4d --metric accuracy
    vlcli table tiny-irpe --format latex -o table4.tex --plot table4.svg
    """
    from vlcli.tables import outputs, text
    from vlcli.tables.results import write_results
    from vlcli.tables.summary import summarise
    from vlcli.tools.run_tables import collect, model_index

    form = "json" if request.json_ else form
    forms: dict[str, Callable[[Summary], str]] = {"text": text.aligned, **outputs.FORMATS}
    known = [*forms, "json", "model-index"]
    if form not in known:
        raise UsageError("There is no such format of a table.", got=form, expected=", ".join(known))
    results = collect(runs, request.output, reference)
    summary = summarise(results, metric or ())
    forms["model-index"] = partial(model_index, results)
    if out is not None:
        if form == "json":
            write_results(results, out, statistics=summary.as_dict())
        else:
            write_text(out, forms[form](summary))
        console.out(str(out))
    elif form == "json":
        console.out_json({**results.as_dict(), "statistics": summary.as_dict()})
    elif form == "text":
        tell(summary)
    else:
        console.out(forms[form](summary).rstrip("\n"))
    console.err_lines(f"plot: {outputs.write_plot(summary, path)}" for path in plot or [])


def tell(summary: Summary) -> None:
    """Writes a table to stdout: the result in words first, notes below."""
    from vlcli.tables.text import blocks

    if summary.conclusions:
        console.out_lines([*summary.conclusions, ""])
    for index, block in enumerate(blocks(summary)):
        if index:
            console.out("")
        console.table(block.columns, [cells for _, cells in block.rows], block.title)
        console.out_lines(block.notes)
    console.out_lines(f"{note[0].upper()}{note[1:]}." for note in summary.notes)


@requested("output", "device", "plugin", "json_", "quiet", "verbose")
def report(
    request: RunRequest,
    runs: Annotated[list[str], Argument(metavar="RUN...", help=_REPORTED)],
    out: Annotated[Path | None, Option("--out", "-o", help=_PAGE)] = None,
    no_model: Annotated[bool, Option("--no-model", help="Leave out what needs models: attention, Grad-CAM.")] = False,
    samples: Annotated[int, Option(min=0, help="Samples of each group of evaluate stages.")] = 36,
) -> None:
    """Write a page that shows runs: results, samples, attention, curves, stages, differences. It needs no network.

    vlcli report quickstart
    vlcli report quickstart quickstart-1a2b3c4d -o page.html
    vlcli report reproduce
    """
    from vlcli.pages.report import ReportOptions, write_report
    from vlcli.tools.run_folder import REPORT, find_run

    settings = ReportOptions(samples, not no_model, request.device or "auto")
    if (results := _alone(runs, request.output)) is not None:
        page = _write_results(results, out or results.parent / REPORT, settings, request.progress())
        shown: dict[str, Any] = {"results": str(results)}
    else:
        folders = list(dict.fromkeys(find_run(name, request.output) for name in runs))
        page = out or (folders[0] / REPORT if len(folders) == 1 else Path(REPORT))
        write_report(folders, page, settings, request.progress())
        shown = {"runs": [str(path) for path in folders]}
    console.answer(request.json_, {"page": str(page), "bytes": page.stat().st_size, **shown}, str(page))


def _alone(runs: list[str], output: Path) -> Path | None:
    from vlcli.claims import results_file
    from vlcli.tools.run_folder import is_run
    from vlcli.tools.run_tables import written_table

    meant = (written_table(name, output) or results_file.find(name, output) for name in runs)
    files = [file for file in meant if file is not None and (not is_run(file.parent) or str(file) in runs)]
    if files and len(runs) > 1:
        hint = f"name it alone: vlcli report {files[0]}"
        raise UsageError("A table, and verdicts on claims, have a page of their own.", got=", ".join(runs), hint=hint)
    return files[0] if files else None


def _write_results(results: Path, page: Path, options: ReportOptions, progress: Progress) -> Path:
    # the file says by its contents, or else by its name, whether it is a table
    from vlcli.claims.reproduce import of_results
    from vlcli.claims.verdicts import judge
    from vlcli.pages.tables import write_table
    from vlcli.pages.verdicts import write_verdicts
    from vlcli.tables.results import FILE, read_results

    try:
        value = json.loads(results.read_bytes())
        is_table = isinstance(value, dict) and "rows" in value
    except (ValueError, RecursionError, OSError):
        is_table = results.name == FILE
    if is_table:
        return write_table(read_results(results), page, options, progress)
    study = of_results(results)
    seconds = sum(one.seconds for one in study.shown().cells.values())
    return write_verdicts(judge(study.claims, study.look), page, "vlcli reproduce", seconds)


_SIDE = "A recipe's name or file, a run (its folder, or its name under runs/), or RUN/STAGE."
_Side = Annotated[str, Argument(help=_SIDE, autocompletion=options.complete_recipes)]
_WIDEST = 60
_SIDES, _PARTS = ("first", "second"), ("settings", "versions", "data")


@requested("output", "json_")
def diff(
    request: RunRequest,
    a: _Side,
    b: _Side,
    every: Annotated[bool, Option("--all", help="Also metrics that are the same in both.")] = False,
) -> None:
    """Compare two recipes or two runs: settings, versions, data, and metrics with paired 95 % intervals.

    vlcli diff quickstart mine.yaml
    vlcli diff runs/quickstart runs/quickstart-1a2b3c4d
    vlcli diff quickstart/test quickstart/scratch-test
    """
    from vlcli.tools.differences import Comparison, compare_runs, compare_settings
    from vlcli.tools.run_folder import find_run, read_run

    # a registered recipe's name means the recipe, though a run of this name lies under runs/: runs/NAME is that
    recipes = [name for name in (a, b) if not Path(name).expanduser().is_dir() and is_recipe(name)]
    runs = {name: read_run(find_run(name, request.output)) for name in (a, b) if name not in recipes}
    if recipes:
        values = [_recipe(name) if name in recipes else runs[name].recipe for name in (a, b)]
        comparison = Comparison([a, b], compare_settings(values))
    else:
        comparison = compare_runs([runs[a], runs[b]])
    console.err_lines(f"warning: {fault}" for fault in comparison.faults)
    console.out_json(_document(comparison)) if request.json_ else _tell(comparison, every)


def _recipe(name: str) -> dict[str, Any]:
    if not is_table(name):
        value: dict[str, Any] = load(name, plugins=False).document.value
        return value | ({"published": told} if (told := _told(published_of(name))) else {})
    table = load_table(name, plugins=False)
    rows: dict[str, dict[str, Any]] = {}
    for label, row in table.rows.items():
        rows[label] = {key: item for level in row.levels for key, item in level.value.items()}
        if row.published:
            rows[label]["published"] = _told({key: asdict(one) for key, one in row.published.items()})
    return {**table.document.value, "rows": rows}


def _told(published: dict[str, Any]) -> dict[str, str]:
    return {key: f"{one['value']:g} on {one['split']} (table {one['table']})" for key, one in published.items()}


def _document(comparison: Comparison) -> dict[str, Any]:
    metrics = {
        stage: [{**asdict(row), "difference": row.difference} for row in sides[0]]
        for stage, sides in comparison.metrics.items()
    }
    document: dict[str, Any] = dict(zip(_SIDES, comparison.labels, strict=True))
    for name in _PARTS:
        rows = getattr(comparison, name)
        document[name] = [{"key": row.key, **dict(zip(_SIDES, row.values, strict=True))} for row in rows]
    return {**document, "metrics": metrics, "faults": comparison.faults}


def _tell(comparison: Comparison, every: bool) -> None:
    parts = {name: part for name in _PARTS if (part := getattr(comparison, name))}
    for title, part in parts.items():
        console.table([title, *comparison.labels], [[row.key, *map(_cell, row.values)] for row in part])
        console.out("")
    rows = [
        [f"{stage}: {row.name}", *_numbers(row)]
        for stage, sides in comparison.metrics.items()
        for row in sides[0]
        if every or row.difference != 0
    ]
    if rows:
        console.table(["metrics", *comparison.labels, "difference", "95 % interval", "examples"], rows)
    elif not parts:
        console.out("no difference")
    elif comparison.metrics:
        console.out("metrics: all the same")


def _numbers(row: Paired) -> list[str]:
    sides = ["-" if value is None else number(value) for value in (row.first, row.second)]
    change = "" if row.difference is None else f"{row.difference:+.3f}"
    between = "" if row.low is None or row.high is None else f"{row.low:+.3f} to {row.high:+.3f}"
    return [*sides, change, between, str(row.count or "")]


def _cell(value: Any) -> str:
    text = "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
