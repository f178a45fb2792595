"""``vlcli run TABLE``: the rows of a table over seeds, and the table of what they measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vlcli.cli import console, render
from vlcli.cli.guard import as_vlcli, report
from vlcli.cli.request import RunRequest, how, plan_options, words_of
from vlcli.cli.scores import main_metrics
from vlcli.cli.tables import tell
from vlcli.errors import Problem, RecipeError, UsageError, VlcliError
from vlcli.runner.rows import RowRun, results, row_runs, run_rows

if TYPE_CHECKING:
    from vlcli.recipe.table import RowTable
    from vlcli.tables.results import TableResults


def run_tables(
    names: list[str], overrides: list[str], request: RunRequest, rows: str | None, seeds: int | None, yes: bool
) -> None:
    """Run (or plan) tables, print what each measured, and leave with an exit code.

    Args:
        names: tables, or ``TABLE:7,8``.
        overrides: for every row.
        request: the command line.
        rows: ``--rows``.
        seeds: ``--seeds``; None: what the table says.
        yes: whether a grid may have more than 1,000 cells.
    """
    from vlcli.recipe.table import load_table

    if request.folder is not None:
        raise UsageError("A table has a folder for each row.", got=str(request.folder), hint="--output DIR")
    wanted = [one.strip() for one in rows.split(",")] if rows is not None else []
    codes, documents = [], []
    for name in names:
        table = load_table(name, words_of(overrides, request), rows=wanted, many=yes, only=request.only, **how(request))
        runs = row_runs(table, seeds or table.written.seeds)
        code, document = _plan(table, runs, request) if request.dry_run else _run(table, runs, request)
        codes.append(code)
        documents.append(document)
    if request.json_:
        console.out_json(documents[0] if len(documents) == 1 else {"tables": documents})
    if code := next((code for code in codes if code), 0):
        raise typer.Exit(code)


def _run(table: RowTable, runs: list[RowRun], request: RunRequest) -> tuple[int, dict[str, Any]]:
    many = len({run.seed for run in runs}) > 1
    count = iter(range(1, len(runs) + 1))

    def begins(run: RowRun) -> None:
        if not request.quiet:
            seed = f", seed {run.seed}" if many else ""
            console.err(f"{table.reference}:{run.label}{seed} ({next(count)} of {len(runs)})")

    shown = console.progress(request.verbose, request.quiet)
    jobs = request.jobs or next((run.resolved.recipe.jobs for run in runs if run.resolved is not None), 1)
    run_rows(runs, plan_options(request), jobs, shown, begins)
    found = results(table, runs)
    folder = table_folder(table, request.output)
    if not request.json_:
        _tell(runs, many)
    files, wrong = _write(found, folder, request)
    _failures(table, runs, request)
    code = 1 if wrong or any(run.state != "done" for run in runs) else 0
    rows = [_document(run) for run in runs]
    made = {name: one.as_dict(folder) for name, one in found.items()}
    return code, {"recipe": table.reference, "rows": rows, "results": made, "files": [str(file) for file in files]}


def _tell(runs: Sequence[RowRun], many: bool) -> None:
    """A line for every run."""
    rows = []
    for run in runs:
        scores = [main_metrics(one.metrics) for one in run.outcomes if one.kind == "evaluate" and one.metrics]
        seed = [str(run.seed)] if many else []
        rows.append(
            [run.label, *seed, run.state, render.seconds(run.seconds), "; ".join(scores), str(run.folder or "-")]
        )
    console.table(["row", *(["seed"] if many else []), "state", "time", "metrics", "folder"], rows)


def _write(found: dict[str, TableResults], folder: Path, request: RunRequest) -> tuple[list[Path], bool]:
    """Print the tables, and write their files beside one another in the table's own folder.

    Returns:
        The files, and whether a table could not be shown or written.
    """
    from vlcli.recipe.locate import slug
    from vlcli.tables.outputs import write_table
    from vlcli.tables.summary import summarise

    files: list[Path] = []
    wrong = False
    for label, one in found.items():
        stem = f"table-{slug(label)}" if label else "table"
        try:
            files += write_table(one, folder, stem)
            if not request.json_:
                console.out("")
                tell(summarise(one))
        except VlcliError as error:
            wrong = True
            report(error, verbose=request.verbose)
    if files and not request.json_:
        console.err(f"table: {', '.join(str(file) for file in files)}")
    return files, wrong


def table_folder(table: RowTable, output: Path) -> Path:
    """Where the results of a table lie: ``OUTPUT/TABLE``, with a hash where overrides change it."""
    from vlcli.recipe.stage_record import digest

    words = list(table.loading.words)
    return output / (f"{table.name}-{digest(words)[:8]}" if words else table.name)


def _failures(table: RowTable, runs: Sequence[RowRun], request: RunRequest) -> None:
    """What went wrong with each row, on stderr; a fault that several runs share once."""
    told: set[str] = set()
    for run in runs:
        if run.state == "done":
            continue
        console.err(f"{table.reference}:{run.label}, seed {run.seed}: {run.state}")
        if run.error is None:
            for outcome in run.outcomes:
                if outcome.status == "blocked":
                    console.err(f"stage {outcome.name} is blocked: {outcome.why}")
        elif str(run.error) not in told:
            told.add(str(run.error))
            report(run.error, verbose=request.verbose)


def _document(run: RowRun) -> dict[str, Any]:
    error = None if run.error is None else as_vlcli(run.error).as_dict()
    stages = [render.outcome_row(one) for one in run.outcomes]
    facts = {"label": run.label, "seed": run.seed, "state": run.state, "folder": str(run.folder or "")}
    return {**facts, "stages": stages, **({"error": error} if error else {})}


def _plan(table: RowTable, runs: Sequence[RowRun], request: RunRequest) -> tuple[int, dict[str, Any]]:
    """``--dry-run``: every stage of every row (one that an earlier row will have made is reused), and every fault."""
    from vlcli.recipe import plan as planning
    from vlcli.recipe.validate import shallow

    rows: list[dict[str, Any]] = []
    made: dict[str, str] = {}
    problems: dict[tuple[str, str, str], Problem] = {}
    code = 0
    for run in runs:
        if run.resolved is None:
            code = report(run.error or UsageError("This row cannot be loaded."), verbose=request.verbose)
            continue
        _, steps = planning.make(run.resolved, plan_options(request))
        for one in shallow(run.resolved, [step.name for step in steps if step.action in ("run", "resume", "blocked")]):
            problems.setdefault((one.where, one.key, one.what), replace(one, key=f"{run.label}: {one.key}"))
        for step in steps:
            action, why = step.action, step.why
            if step.works and made.get(step.key, run.label) != run.label:
                action, why = "reuse", f"row {made[step.key]} will have made it"
            elif step.works and step.key:
                made[step.key] = run.label
            code = code or (5 if action == "blocked" else 0)
            facts = {"row": run.label, "seed": run.seed, "stage": step.name, "kind": step.kind}
            rows.append(
                {**facts, "action": action, "why": why, "key": step.key, "folder": str(step.artifact or step.folder)}
            )
    if not request.json_:
        columns = ["row", "seed", "stage", "kind", "action", "why", "folder"]
        console.table(columns, [[str(row[column]) for column in columns] for row in rows])
    found = list(problems.values())
    if found:
        code = report(RecipeError(found, table.reference), verbose=request.verbose)
    return code, {"recipe": table.reference, "stages": rows, "problems": [vars(one) for one in found]}
