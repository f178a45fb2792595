"""``vlcli run R1 R2 --seeds N --table``: recipes over seeds, mean and 95 % interval per metric."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import typer

from vlcli.cli import console, render
from vlcli.cli.request import RunRequest, plan_options, resolve
from vlcli.errors import UsageError
from vlcli.recipe.resolved import Resolved
from vlcli.runner.execute import StageOutcome
from vlcli.runner.run import run_recipe
from vlcli.tools.table import labelled, seeds_table


def sweep(names: list[str], overrides: list[str], request: RunRequest, seeds: int) -> None:
    """Run every recipe over ``seeds`` seeds from its own (or ``--seed``) on; print one table, leave with an exit code.

    Stages that do not depend on the seed are made once and reused.
    """
    if request.only or request.folder:
        raise UsageError("--only goes with one recipe and one seed.", hint="leave out --only, or --seeds")
    code, patterns = 0, None
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
            _collect(runs, labelled(base.recipe.table, outcomes), base.name if len(names) > 1 else "")
            documents.append({"recipe": base.name, "seed": seed, "stages": [render.outcome_row(o) for o in outcomes]})
    if not request.dry_run:
        _tell(runs, patterns, request, documents, seeds)
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


def _tell(runs: dict[str, Any], patterns: Any, request: RunRequest, documents: list[Any], seeds: int) -> None:
    table = seeds_table(runs, patterns, f"mean and 95 % interval over {seeds} seeds")
    if request.json_:
        console.out_json({"runs": documents, "table": table.as_dict()})
    else:
        console.table(table.columns, table.text_rows(), table.text_title())
