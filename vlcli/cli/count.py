"""``vlcli count RECIPE``: parameters per part and multiply-accumulates, exact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded


@guarded
def count(
    words: o.RecipeAndWords,
    stage: Annotated[str | None, typer.Option("--stage", help="A training stage; default: the first.")] = None,
    answers: Annotated[int | None, typer.Option("--answers", min=1, help="Rows of the answer head.")] = None,
    heads: Annotated[bool, typer.Option("--heads/--no-heads", help="Count the objectives' heads too.")] = True,
    output: o.Output = Path("runs"),
    plugin: o.Plugin = None,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Count a recipe's model: parameters per part, multiply-accumulates of one example."""
    from vlcli.cli import console
    from vlcli.recipe.load import load
    from vlcli.stages.counting import count as count_recipe

    o.load_plugins(plugin)
    name, overrides = o.one_recipe(words)
    resolved = load(name, overrides, only=stage)
    found = count_recipe(resolved, stage, answers=answers, output=output, heads=heads)
    if json_:
        console.out_json({"recipe": resolved.name, **found})
        return
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
