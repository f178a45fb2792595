"""``vlcli validate RECIPE``: every fault at once, before anything costs time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded

if TYPE_CHECKING:
    from vlcli.errors import Problem
    from vlcli.recipe.resolved import Resolved
    from vlcli.recipe.table import RowTable


@guarded
def validate(
    words: o.RecipeAndWords,
    deep: Annotated[
        bool, typer.Option("--deep", help="Import components, check every parameter, try one fake step a stage.")
    ] = False,
    output: o.Output = Path("runs"),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Check a grid of more than 1,000 cells.")] = False,
    plugin: o.Plugin = None,
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Check a recipe: structure, names, wiring, files; with --deep everything that can be known beforehand."""
    from vlcli.cli import console
    from vlcli.recipe.load import load
    from vlcli.recipe.table import is_table, load_table

    o.load_plugins(plugin)
    name, overrides = o.one_recipe(words)
    how = _How(deep, output, verbose)
    if is_table(name):
        table = load_table(name, overrides or [], trust=trust, deep=deep, many=yes)
        stages = _validate_rows(table, how)
        facts: dict[str, Any] = {"recipe": table.name, "rows": list(stages)}
        count = f"{len(stages)} row" + ("" if len(stages) == 1 else "s")
    else:
        resolved = load(name, overrides, trust=trust, deep=deep)
        _check(resolved, how)
        facts, count = {"recipe": resolved.name, "stages": list(resolved.stages)}, _count(len(resolved.stages))
    if json_:
        console.out_json({**facts, "valid": True, "deep": deep})
    else:
        console.out(f"{name}: valid ({'deep' if deep else 'shallow'}), {count}")
        if not deep:
            console.err(f"not checked: options of components, data (vlcli validate {name} --deep checks them)")


@dataclass(frozen=True)
class _How:
    """The options of the verb."""

    deep: bool
    output: Path
    verbose: int


def _validate_rows(table: RowTable, how: _How) -> dict[str, list[str]]:
    """The stages of every row of a table in which nothing is wrong; faults of all rows are told at once."""
    from vlcli.errors import RecipeError

    problems: dict[tuple[str, str, str], Problem] = {}
    stages: dict[str, list[str]] = {}
    for label in table.chosen:
        try:
            resolved = table.member(label)
            _check(resolved, how)
            stages[label] = list(resolved.stages)
        except RecipeError as error:
            for one in error.problems:
                told = replace(one, key=f"{label}: {one.key}")
                problems.setdefault((one.where, one.key, one.what), told)
    if problems:
        raise RecipeError(list(problems.values()), table.reference)
    return stages


def _check(resolved: Resolved, how: _How) -> None:
    """Raise what is wrong with a recipe."""
    from vlcli.cli import console
    from vlcli.errors import RecipeError
    from vlcli.recipe.validate import shallow

    problems = [] if how.deep else shallow(resolved)  # deep validation tells these beside its own
    if problems:
        raise RecipeError(problems, resolved.reference)
    if how.deep:
        from vlcli.recipe import plan
        from vlcli.runner.preflight import preflight

        planner, steps = plan.make(resolved, plan.RunOptions(how.output))
        for line in preflight(planner, steps, list(resolved.stages), console.progress(how.verbose)):
            console.err(line)


def _count(stages: int) -> str:
    return "1 stage" if stages == 1 else f"{stages} stages"
