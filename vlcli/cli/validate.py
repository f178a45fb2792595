"""``vlcli validate RECIPE``: tells every fault at once, before anything costs time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import console
from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.errors import Problem, RecipeError

if TYPE_CHECKING:
    from vlcli.recipe.resolved import Resolved


@guarded
def validate(
    words: o.RecipeAndWords,
    deep: Annotated[
        bool, typer.Option("--deep", help="Import components, check every parameter, try one fake step a stage.")
    ] = False,
    output: o.Output = Path("runs"),
    yes: o.Yes = False,
    plugin: o.Plugin = None,
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Check a recipe: structure, names, wiring, files; with --deep everything that can be known beforehand."""
    from vlcli.recipe.load import load
    from vlcli.recipe.table import is_table, load_table

    name, overrides = o.one_name(words)
    if is_table(name):
        table = load_table(name, overrides or [], trust=trust, deep=deep, many=yes)
        problems: list[Problem] = []
        rows = []
        for label in table.chosen:
            try:
                _check(table.member(label), deep, output, verbose)
                rows.append(label)
            except RecipeError as error:
                problems += [replace(one, key=f"{label}: {one.key}") for one in error.problems]
        if problems:
            raise RecipeError(problems, table.reference)
        facts: dict[str, Any] = {"recipe": table.name, "rows": rows}
        count, unit = len(rows), "row"
    else:
        resolved = load(name, overrides, trust=trust, deep=deep)
        _check(resolved, deep, output, verbose)
        facts, count, unit = {"recipe": resolved.name, "stages": list(resolved.stages)}, len(resolved.stages), "stage"
    if json_:
        console.out_json({**facts, "valid": True, "deep": deep})
        return
    console.out(f"{name}: valid ({'deep' if deep else 'shallow'}), {count} {unit}{'s' * (count != 1)}")
    if not deep:
        console.err(f"not checked: options of components, data (vlcli validate {name} --deep checks them)")


def _check(resolved: Resolved, deep: bool, output: Path, verbose: int) -> None:
    from vlcli.recipe import plan
    from vlcli.recipe.validate import shallow

    if not deep:
        if problems := shallow(resolved):
            raise RecipeError(problems, resolved.reference)
        return
    from vlcli.runner.preflight import preflight

    planner, steps = plan.make(resolved, plan.RunOptions(output))
    for line in preflight(planner, steps, list(resolved.stages), console.progress(verbose)):
        console.err(line)
