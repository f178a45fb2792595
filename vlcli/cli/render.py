"""Renders a plan and the outcomes of a run: as tables, or as JSON."""

from __future__ import annotations

import sys
from typing import Any

from vlcli.cli import console
from vlcli.cli.guard import as_vlcli, report
from vlcli.cli.scores import main_metrics
from vlcli.recipe import plan as planning
from vlcli.recipe.plan import PlannedStage, RunOptions
from vlcli.recipe.resolved import Resolved
from vlcli.runner.execute import StageOutcome
from vlcli.tools.table import Table, recipe_table

_WORDS = {"passed": "passed over", "outside": "not chosen"}


def render_plan(resolved: Resolved, options: RunOptions, request: Any) -> int:
    """``--dry-run``: every stage, what would be done, why, where; returns the exit code a run would fail with."""
    from vlcli.recipe.validate import shallow

    planner, steps = planning.make(resolved, options)
    problems = shallow(resolved, [step.name for step in steps if step.action in ("run", "resume", "blocked")])
    blocked = [step for step in steps if step.action == "blocked"]
    if request.json_:
        console.out_json(
            {
                "recipe": resolved.name,
                "folder": str(planner.folder),
                "overrides": resolved.words,
                "stages": [_step_row(step) for step in steps],
                "problems": [vars(problem) for problem in problems],
            }
        )
    else:
        for word in resolved.words:
            console.err(f"override: {word}")
        rows = [
            [s.name, s.kind, _WORDS.get(s.action, s.action), s.why, s.key[:8], str(s.artifact or s.folder)]
            for s in steps
        ]
        console.table(["stage", "kind", "action", "why", "key", "folder"], rows)
    if problems:
        from vlcli.errors import RecipeError

        return report(RecipeError(problems, resolved.reference))
    return 5 if blocked else 0


def _step_row(step: PlannedStage) -> dict[str, Any]:
    return {
        "stage": step.name,
        "kind": step.kind,
        "action": step.action,
        "why": step.why,
        "key": step.key,
        "folder": str(step.artifact or step.folder),
    }


def render_outcomes(resolved: Resolved, outcomes: list[StageOutcome], request: Any, **more: Any) -> int:
    """What a run did: a table of stages, the recipe's own table, errors last; returns the exit code.

    ``more`` joins the document of ``--json``.
    """
    code = exit_code(outcomes)
    table = recipe_table(resolved.recipe.table, outcomes) if resolved.recipe.table else None
    if request.json_:
        document: dict[str, Any] = {"recipe": resolved.name, "stages": [outcome_row(o) for o in outcomes], **more}
        if table is not None:
            document["table"] = table.as_dict()
        failed = next((o.error for o in outcomes if o.error is not None), None)
        if failed is not None:
            document["error"] = as_vlcli(failed).as_dict()
        console.out_json(document)
    elif not request.worker:
        _show(outcomes, table)
    render_failures(outcomes, request)
    return code


def render_failures(outcomes: list[StageOutcome], request: Any) -> None:
    """What failed and what was held up by it, on stderr."""
    for outcome in outcomes:
        if outcome.error is not None:
            console.err(f"stage {outcome.name} failed")
            report(outcome.error, verbose=request.verbose)
        elif outcome.status == "blocked":
            console.err(f"stage {outcome.name} is blocked: {outcome.why}")


def _show(outcomes: list[StageOutcome], table: Table | None) -> None:
    rows = [
        [
            o.name,
            o.kind,
            _WORDS.get(o.action, o.action) if o.status != "failed" else "failed",
            seconds(o.seconds),
            main_metrics(o.metrics),
            str(o.folder),
        ]
        for o in outcomes
    ]
    columns = ["stage", "kind", "action", "time", "metrics", "folder"]
    places = {o.folder.parent for o in outcomes if o.folder.name == o.name}
    if console.is_terminal(sys.stdout) and len(places) == 1 and all(o.folder.name == o.name for o in outcomes):
        console.table(columns[:-1], [row[:-1] for row in rows], f"{places.pop()}/")  # leaves room for the metrics
    else:
        console.table(columns, rows)
    if table is not None and any(value is not None for _, values in table.rows for value in values):
        console.out("")
        console.table(table.columns, table.text_rows(), table.text_title())


def outcome_row(outcome: StageOutcome) -> dict[str, Any]:
    """One stage for ``--json``."""
    return {
        "stage": outcome.name,
        "kind": outcome.kind,
        "action": outcome.action,
        "status": outcome.status,
        "why": outcome.why,
        "seconds": round(outcome.seconds, 3),
        "metrics": outcome.metrics,
        "folder": str(outcome.folder),
        "notes": outcome.notes,
        "error": "" if outcome.error is None else str(outcome.error),
    }


def exit_code(outcomes: list[StageOutcome]) -> int:
    """That of the first failure; 5 where something was blocked; 0 otherwise."""
    for outcome in outcomes:
        if outcome.error is not None:
            return as_vlcli(outcome.error).exit_code
    return 5 if any(outcome.status == "blocked" for outcome in outcomes) else 0


def seconds(value: float) -> str:
    """``3.2 s`` or ``4 min 05 s``."""
    if value == 0:
        return ""
    return f"{value:.1f} s" if value < 60 else f"{int(value // 60)} min {int(value % 60):02} s"
