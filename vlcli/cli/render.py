"""Renders plans and outcomes of runs as tables or as JSON, and writes the page with which a run ends."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlcli.cli import console
from vlcli.cli.guard import RunRequest, as_vlcli, report
from vlcli.cli.words import main_metrics, spent
from vlcli.errors import Problem, RecipeError, VlcliError, each_once
from vlcli.progress import Progress
from vlcli.recipe.locate import Resolved
from vlcli.recipe.plan import PlannedStage, Planner, RunOptions, make
from vlcli.recipe.validate import shallow
from vlcli.runner.execute import StageOutcome
from vlcli.tables.results import TableResults
from vlcli.tools.table import recipe_table

_WORDS = {"passed": "passed over", "outside": "not chosen"}


def read_plan(resolved: Resolved, options: RunOptions) -> tuple[Planner, list[PlannedStage], list[Problem]]:
    """Plans a run and returns its planner, its stages and what is wrong with those that would run."""
    planner, steps = make(resolved, options)
    return planner, steps, shallow(resolved, [step.name for step in steps if step.works or step.action == "blocked"])


def step_row(step: PlannedStage, **more: Any) -> dict[str, Any]:
    """Returns a planned stage as JSON has it."""
    row = {"stage": step.name, "kind": step.kind, "action": step.action, "why": step.why, "key": step.key}
    return {**more, **row, "folder": str(step.artifact or step.folder)}


def render_plan(resolved: Resolved, request: RunRequest) -> int:
    """Shows every stage for ``--dry-run``: what would be done, why, where; returns a run's exit code."""
    planner, steps, problems = read_plan(resolved, request.options)
    rows = [step_row(step) for step in steps]
    if request.json_:
        faults = [vars(problem) for problem in each_once(problems)]
        facts = {"recipe": resolved.name, "folder": str(planner.folder), "overrides": resolved.words}
        console.out_json({**facts, "stages": rows, "problems": faults})
    else:
        console.err_lines(f"override: {word}" for word in resolved.words)
        cells = [{**row, "action": _WORDS.get(row["action"], row["action"]), "key": row["key"][:8]} for row in rows]
        columns = ["stage", "kind", "action", "why", "key", "folder"]
        console.table(columns, [[row[column] for column in columns] for row in cells])
    if problems:
        return report(RecipeError(problems, resolved.reference))
    return 5 if any(step.action == "blocked" for step in steps) else 0


def render_outcomes(resolved: Resolved, outcomes: list[StageOutcome], request: RunRequest, **more: Any) -> int:
    """Shows what a run did: its stages, its table, errors last; returns the exit code. ``--json`` adds ``more``."""
    table = recipe_table(resolved.recipe.table, outcomes) if resolved.recipe.table else None
    if request.json_:
        document: dict[str, Any] = {"recipe": resolved.name, "stages": [outcome_row(o) for o in outcomes], **more}
        if table is not None:
            document["table"] = table.as_dict()
        if failed := [o.error for o in outcomes if o.error is not None]:
            document["error"] = as_vlcli(failed[0]).as_dict()
        console.out_json(document)
    else:
        rows = []
        for o in outcomes:
            action = "failed" if o.status == "failed" else _WORDS.get(o.action, o.action)
            rows.append([o.name, o.kind, action, spent(o.seconds), main_metrics(o.metrics), str(o.folder)])
        columns = ["stage", "kind", "action", "time", "metrics", "folder"]
        folders = {o.folder.parent if o.folder.name == o.name else None for o in outcomes}
        if console.is_terminal(sys.stdout) and len(folders) == 1 and None not in folders:
            console.table(columns[:-1], [row[:-1] for row in rows], f"{folders.pop()}/")  # leaves room for the metrics
        else:
            console.table(columns, rows)
        if table is not None and any(value is not None for _, values in table.rows for value in values):
            console.out("")
            console.table(table.columns, table.text_rows(), table.text_title())
    render_failures(outcomes, request)
    return exit_code(outcomes)


def render_failures(outcomes: list[StageOutcome], request: RunRequest) -> None:
    """Shows what failed, and what was blocked by it, on stderr."""
    for outcome in outcomes:
        if outcome.error is not None:
            console.err(f"stage {outcome.name} failed")
            report(outcome.error, verbose=request.verbose)
        elif outcome.status == "blocked":
            console.err(f"stage {outcome.name} is blocked: {outcome.why}")


def outcome_row(outcome: StageOutcome) -> dict[str, Any]:
    """Returns one stage as JSON has it."""
    names = ("kind", "action", "status", "why", "seconds", "metrics", "folder", "notes", "error")
    row = {"stage": outcome.name, **{name: getattr(outcome, name) for name in names}}
    error = "" if outcome.error is None else str(outcome.error)
    return {**row, "seconds": round(outcome.seconds, 3), "folder": str(outcome.folder), "error": error}


def exit_code(outcomes: list[StageOutcome]) -> int:
    """Returns that of the first failure; 5 where something was blocked; 0 otherwise."""
    blocked = 5 if any(outcome.status == "blocked" for outcome in outcomes) else 0
    return next((as_vlcli(one.error).exit_code for one in outcomes if one.error is not None), blocked)


def write_page(shown: Sequence[Path] | TableResults, page: Path, device: str | None, progress: Progress) -> Path | None:
    """Writes the page of runs or of a table and returns it; warns of a fault, and returns None."""
    from vlcli.pages.report import ReportOptions, write_report

    options = ReportOptions(device=device or "auto")
    try:
        if isinstance(shown, Sequence):
            return write_report(list(shown), page, options, progress)
        from vlcli.pages.tables import write_table

        return write_table(shown, page, options, progress)
    except (VlcliError, OSError) as error:
        progress.warn(f"the report could not be written: {' '.join(str(error).split())}")
        return None
