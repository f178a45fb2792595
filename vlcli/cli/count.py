"""``vlcli count RECIPE...``: parameters per part and multiply-accumulates, exact."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import as_vlcli, guarded, report
from vlcli.errors import VlcliError


@dataclass(frozen=True)
class _Choice:
    """What is counted of every recipe that is named."""

    overrides: list[str]
    stage: str | None
    answers: int | None
    heads: bool
    output: Path
    trust: bool


@guarded
def count(
    words: o.RecipesToLookAt,
    stage: Annotated[str | None, typer.Option("--stage", help="A training stage; default: the first.")] = None,
    answers: Annotated[int | None, typer.Option("--answers", min=1, help="Rows of the answer head.")] = None,
    heads: Annotated[bool, typer.Option("--heads/--no-heads", help="Count the objectives' heads too.")] = True,
    output: o.Output = Path("runs"),
    plugin: o.Plugin = None,
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Count a recipe's model: parameters per part, multiply-accumulates of one example; of several, a line each."""
    from vlcli.cli import console

    o.load_plugins(plugin)
    names, overrides = o.some_recipes(words)
    names = [one for name in names for one in _expanded(name, len(names) > 1)]
    choice = _Choice(overrides, stage, answers, heads, output, trust)
    if len(names) > 1:
        _several(names, choice, json_, verbose)
        return
    found = _count(names[0], choice)
    if json_:
        console.out_json(found)
    else:
        _show(names[0], found)


def _expanded(name: str, several: bool) -> list[str]:
    """The recipe, or the rows of a table; of several, one that does not load is told of in its turn."""
    from vlcli.cli.recipes import each

    try:
        return each(name)
    except VlcliError:
        if not several:
            raise
        return [name]


def _count(name: str, choice: _Choice) -> dict[str, Any]:
    from vlcli.recipe.load import load
    from vlcli.tools.counting import count as count_recipe

    resolved = load(name, choice.overrides, only=choice.stage, trust=choice.trust)
    counted = count_recipe(resolved, choice.stage, answers=choice.answers, output=choice.output, heads=choice.heads)
    return {"recipe": resolved.name, **counted}


def _several(names: list[str], choice: _Choice, as_json: bool, verbose: int) -> None:
    """A line a recipe; what cannot be counted is told on stderr, after the others, and gives the exit code."""
    from vlcli.cli import console

    rows, failures = [], []
    with console.progress(verbose).task("count", len(names), "recipes") as task:
        for name in names:
            try:
                rows.append(_first_stage(name, choice))
            except Exception as error:
                failures.append((name, error))
            task.advance()
    if as_json:
        errors = [{"recipe": name, "error": as_vlcli(error).as_dict()} for name, error in failures]
        console.out_json({"recipes": [*rows, *errors]})
    elif rows:
        columns = ["recipe", "stage", "model", "with heads", "multiply-accumulates"]
        console.table(columns, [_line(row) for row in rows])
    codes = [_tell(name, error, verbose) for name, error in failures]
    if codes:
        raise typer.Exit(codes[0])


def _first_stage(name: str, choice: _Choice) -> dict[str, Any]:
    """The recipe's first training stage, or the one that ``--stage`` names; the others are not built."""
    from vlcli.recipe.load import load
    from vlcli.tools.counting import first_stage

    stage = choice.stage or first_stage(load(name, choice.overrides, trust=choice.trust))
    return {**_count(name, replace(choice, stage=stage)), "recipe": name} if stage else {"recipe": name}


def _tell(name: str, error: Exception, verbose: int) -> int:
    from vlcli.cli import console

    console.err(f"{name} cannot be counted")
    return report(error, verbose=verbose)


def _line(row: dict[str, Any]) -> list[str]:
    if "stage" not in row:
        return [row["recipe"], "trains nothing", "-", "-", "-"]
    numbers = (row["backbone"], row["total"], row["macs"]["total"])
    return [row["recipe"], row["stage"], *(f"{number:,}" for number in numbers)]


def _show(name: str, found: dict[str, Any]) -> None:
    """Everything about one recipe: parts, passes, and its other training stages."""
    from vlcli.cli import console

    console.table(["part", "parameters"], _rows(found["parts"], found["total"]), f"{name}, stage {found['stage']}")
    macs = {key: value for key, value in found["macs"].items() if key != "total"}
    console.out("")
    console.table(["pass", "multiply-accumulates"], _rows(macs, found["macs"]["total"]))
    if len(found.get("stages", {})) > 1:
        console.out("")
        rows = [
            [stage, *(_number(row, key) for key in ("backbone", "total"))] for stage, row in found["stages"].items()
        ]
        console.table(["stage", "model", "with heads"], rows)


def _number(row: dict[str, Any], key: str) -> str:
    return row["why"] if row[key] is None else f"{row[key]:,}"


def _rows(counts: dict[str, Any], total: int) -> list[list[str]]:
    return [[part, f"{number:,}"] for part, number in counts.items()] + [["total", f"{total:,}"]]
