"""``vlcli run R1 R2 --seeds N --table``: recipes over seeds, mean and 95 % interval per metric."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from vlcli.cli import console, render
from vlcli.cli.request import RunRequest, plan_options, resolve
from vlcli.cli.tables import tell
from vlcli.errors import UsageError
from vlcli.recipe import plan
from vlcli.recipe.resolved import Resolved
from vlcli.runner.execute import StageOutcome
from vlcli.runner.run import run_recipe
from vlcli.tables.outputs import write_table
from vlcli.tables.results import TableResults
from vlcli.tables.summary import summarise
from vlcli.tools.run_folder import read_run
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
    code, patterns = 0, None
    folders: list[Path] = []
    runs: dict[str, list[dict[str, float]]] = {}
    documents: list[dict[str, Any]] = []
    for name in names:
        base = resolve(name, overrides, request)
        patterns = patterns or (base.recipe.table.metrics if base.recipe.table else None)
        for seed in range(base.recipe.seed, base.recipe.seed + seeds):
            one = _seeded(base, name, overrides, request, seed)
            console.err(f"{name}, seed {seed}")
            outcomes, failed = _run(one, request)
            code = code or failed
            folders += [] if request.dry_run else [plan.make(one, plan_options(request))[0].folder]
            _collect(runs, labelled(base.recipe.table, outcomes), base.name if len(names) > 1 else "")
            documents.append({"recipe": base.name, "seed": seed, "stages": [render.outcome_row(o) for o in outcomes]})
    if not request.dry_run:
        _tell(runs, patterns, request, documents, seeds, folders)
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


def _tell(
    runs: dict[str, Any], patterns: Any, request: RunRequest, documents: list[Any], seeds: int, folders: list[Path]
) -> None:
    """The table on stdout, and its files in the folder of the first run."""
    title = f"mean and 95 % interval over {seeds} seeds"
    found = _results([folder for folder in folders if folder.is_dir()], title)
    made = None if found is None else summarise(found, patterns or ())
    files = [] if found is None or made is None else write_table(found, folders[0], STEM, made)
    if request.json_:
        table = seeds_table(runs, patterns, title).as_dict()
        more = {} if made is None else {"statistics": made.as_dict(), "files": [str(file) for file in files]}
        console.out_json({"runs": documents, "table": {**table, **more}})
    elif made is not None:
        tell(made)
        console.err(f"table: {folders[0] / STEM}.* ({', '.join(file.suffix.lstrip('.') for file in files)})")


def _results(folders: list[Path], title: str) -> TableResults | None:
    """What the runs measured, read from their folders; None where none has numbers."""
    if not folders:
        return None
    try:
        found = table_of([read_run(folder) for folder in folders])
    except UsageError:
        return None
    found.title = title
    return found if any(row.done for row in found.rows) else None
