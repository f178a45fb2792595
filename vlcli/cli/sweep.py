"""``vlcli run R1 R2 --seeds N --table``: recipes over seeds, mean and 95 % interval per metric."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from vlcli.cli import console, render
from vlcli.cli.request import RunRequest, plan_options, resolve
from vlcli.cli.run_page import page_of
from vlcli.cli.tables import tell
from vlcli.errors import UsageError
from vlcli.recipe import plan
from vlcli.recipe.resolved import Resolved
from vlcli.runner.execute import StageOutcome
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
    """Run every recipe over ``seeds`` seeds from its own (or ``--seed``) on; print one table, leave with an exit code.

    Stages that do not depend on the seed are made once and reused.
    """
    if request.only or request.folder:
        raise UsageError("--only goes with one recipe and one seed.", hint="leave out --only, or --seeds")
    code, patterns, reported = 0, None, False
    folders: dict[str, list[Path]] = {}
    runs: dict[str, list[dict[str, float]]] = {}
    documents: list[dict[str, Any]] = []
    for name in names:
        base = resolve(name, overrides, request)
        patterns = patterns or (base.recipe.table.metrics if base.recipe.table else None)
        reported = reported or base.recipe.report
        for seed in range(base.recipe.seed, base.recipe.seed + seeds):
            one = _seeded(base, name, overrides, request, seed)
            console.err(f"{name}, seed {seed}")
            outcomes, failed = _run(one, request)
            code = code or failed
            if not request.dry_run:
                folders.setdefault(base.name, []).append(plan.make(one, plan_options(request))[0].folder)
            _collect(runs, labelled(base.recipe.table, outcomes), base.name if len(names) > 1 else "")
            documents.append({"recipe": base.name, "seed": seed, "stages": [render.outcome_row(o) for o in outcomes]})
    if not request.dry_run:
        page = _page(folders, request) if reported else None
        _tell(runs, patterns, request, documents, seeds, folders, page)
    if code:
        raise typer.Exit(code)


def _seeded(base: Resolved, name: str, overrides: list[str], request: RunRequest, seed: int) -> Resolved:
    """The recipe with another seed; its own seed keeps the recipe's own folder."""
    if seed == base.recipe.seed:
        return base
    return resolve(name, overrides, replace(request, seed=seed))


def _run(resolved: Resolved, request: RunRequest) -> tuple[list[StageOutcome], int]:
    if request.dry_run:
        return [], render.render_plan(resolved, plan_options(request), request)
    outcomes = run_recipe(resolved, plan_options(request), console.progress(request.verbose, request.quiet))
    code = render.exit_code(outcomes)
    if code:
        render.render_failures(outcomes, request)
    return outcomes, code


def _collect(runs: dict[str, list[dict[str, float]]], found: dict[str, dict[str, float]], recipe: str) -> None:
    for label, metrics in found.items():
        runs.setdefault(f"{recipe}: {label}" if recipe else label, []).append(metrics)


def _page(folders: dict[str, list[Path]], request: RunRequest) -> Path | None:
    """One page of all runs side by side, beside the first."""
    found = [folder for made in folders.values() for folder in made if is_run(folder)]
    progress = console.progress(request.verbose, request.quiet)
    return page_of(found, found[0] / f"{STEM}.html", request.device, progress) if found else None


def _tell(
    runs: dict[str, Any],
    patterns: Any,
    request: RunRequest,
    documents: list[Any],
    seeds: int,
    folders: dict[str, list[Path]],
    page: Path | None,
) -> None:
    """The table on stdout, and its files in the folder of the first run."""
    title = f"mean and 95 % interval over {seeds} seeds"
    found, first = _results(folders, title), next(iter(folders.values()))[0]
    made = None if found is None else summarise(found, patterns or ())
    files = [] if found is None or made is None else write_table(found, first, STEM, made)
    if request.json_:
        table = seeds_table(runs, patterns, title).as_dict()
        more = {} if made is None else {"statistics": made.as_dict(), "files": [str(file) for file in files]}
        reported = {} if page is None else {"report": str(page)}
        console.out_json({"runs": documents, "table": {**table, **more}, **reported})
        return
    if made is not None:
        tell(made)
        console.err(f"table: {first / STEM}.* ({', '.join(file.suffix.lstrip('.') for file in files)})")
    if page is not None:
        console.out(f"report: {page}")


def _results(folders: dict[str, list[Path]], title: str) -> TableResults | None:
    """What the runs measured, read from their folders; None where none has numbers.

    The rows of several recipes begin with the recipe's name, also where the recipes compute the same.
    """
    whole = TableResults(title, [])
    for name, made in folders.items():
        try:
            found = table_of([read_run(folder) for folder in made if folder.is_dir()])
        except UsageError:
            continue
        whole.metrics = whole.metrics or found.metrics
        whole.conclusions += [f"{name}: {line}" if len(folders) > 1 else line for line in found.conclusions]
        whole.rows += [replace(row, label=f"{name}: {row.label}") if len(folders) > 1 else row for row in found.rows]
    return whole if any(row.done for row in whole.rows) else None
