"""``vlcli run R1 R2 --seeds N --table``: runs recipes over seeds; mean and 95 % interval per metric."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from vlcli.cli import console, render
from vlcli.cli.request import RunRequest
from vlcli.cli.tables import tell
from vlcli.errors import UsageError
from vlcli.recipe import plan
from vlcli.runner.run import run_recipe
from vlcli.tables.outputs import write_table
from vlcli.tables.results import TableResults
from vlcli.tables.summary import summarise
from vlcli.tools.run_folder import is_run, read_run
from vlcli.tools.run_tables import table_of
from vlcli.tools.table import labelled, seeds_table

STEM = "seeds"
"""Name of the files of a table over seeds, beside the ``table`` of the run itself."""


def sweep(names: list[str], overrides: list[str], request: RunRequest, seeds: int) -> None:
    """Runs every recipe over ``seeds`` seeds from its own (or ``--seed``) on, prints one table, and leaves.

    Stages that do not depend on the seed are made once and reused.
    """
    if request.only or request.folder:
        raise UsageError("--only goes with one recipe and one seed.", hint="leave out --only, or --seeds")
    code, patterns, reported = 0, None, False
    folders: dict[str, list[Path]] = {}
    runs: dict[str, list[dict[str, float]]] = {}
    documents: list[dict[str, Any]] = []
    progress = console.progress(request.verbose, request.quiet)
    for name in names:
        base = request.resolve(name, overrides)
        patterns = patterns or (base.recipe.table.metrics if base.recipe.table else None)
        reported = reported or base.recipe.report
        for seed in range(base.recipe.seed, base.recipe.seed + seeds):
            own_seed = seed == base.recipe.seed  # keeps the recipe's own folder
            resolved = base if own_seed else replace(request, seed=seed).resolve(name, overrides)
            console.err(f"{name}, seed {seed}")
            if request.dry_run:
                planned = render.render_plan(resolved, request)
                code = code or planned
                continue
            outcomes = run_recipe(resolved, request.options, progress)
            failed = render.exit_code(outcomes)
            if failed:
                render.render_failures(outcomes, request)
            code = code or failed
            folders.setdefault(base.name, []).append(plan.make(resolved, request.options)[0].folder)
            for label, metrics in labelled(base.recipe.table, outcomes).items():
                runs.setdefault(f"{base.name}: {label}" if len(names) > 1 else label, []).append(metrics)
            documents.append({"recipe": base.name, "seed": seed, "stages": [render.outcome_row(o) for o in outcomes]})
    if not request.dry_run:
        finished = [folder for paths in folders.values() for folder in paths if is_run(folder)]
        page = None
        if reported and finished:
            page = render.write_page(finished, finished[0] / f"{STEM}.html", request.device, progress)
        _tell(runs, patterns, documents, folders, page, f"mean and 95 % interval over {seeds} seeds", request.json_)
    if code:
        raise typer.Exit(code)


def _tell(
    runs: dict[str, Any],
    patterns: Any,
    documents: list[Any],
    folders: dict[str, list[Path]],
    page: Path | None,
    title: str,
    as_json: bool,
) -> None:
    first = next(iter(folders.values()))[0]
    whole = _results(folders, title)
    summary = None if whole is None else summarise(whole, patterns or ())
    files = [] if whole is None or summary is None else write_table(whole, first, STEM, summary)
    if as_json:
        table = seeds_table(runs, patterns, title).as_dict()
        if summary is not None:
            table |= {"statistics": summary.as_dict(), "files": [str(file) for file in files]}
        console.out_json({"runs": documents, "table": table, **({} if page is None else {"report": str(page)})})
    elif summary is not None:
        tell(summary)
        console.err(f"table: {first / STEM}.* ({', '.join(file.suffix.lstrip('.') for file in files)})")
    if page is not None and not as_json:
        console.out(f"report: {page}")


def _results(folders: dict[str, list[Path]], title: str) -> TableResults | None:
    # rows of several recipes begin with the recipe's name, also where the recipes compute the same
    whole = TableResults(title, [])
    for name, paths in folders.items():
        try:
            part = table_of([read_run(folder) for folder in paths if folder.is_dir()])
        except UsageError:
            continue
        prefix = f"{name}: " if len(folders) > 1 else ""
        whole.metrics = whole.metrics or part.metrics
        whole.conclusions += [prefix + line for line in part.conclusions]
        whole.rows += [replace(row, label=prefix + row.label) for row in part.rows]
    return whole if any(row.done for row in whole.rows) else None
