"""``vlcli count RECIPE...``: counts parameters per part and multiply-accumulates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import console
from vlcli.cli import options as o
from vlcli.cli.guard import as_vlcli, guarded, report
from vlcli.errors import UsageError, VlcliError


@guarded
def count(
    words: o.RecipesToLookAt,
    stage: o.Stage = None,
    answers: Annotated[int | None, typer.Option(min=1, help="Rows of the answer head.")] = None,
    heads: Annotated[bool, typer.Option(help="Count the objectives' heads too.")] = True,
    output: o.Output = Path("runs"),
    plugin: o.Plugin = None,
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Count a recipe's model: parameters per part, multiply-accumulates of one example; of several, a line each."""
    from vlcli.recipe.load import load
    from vlcli.tools.counting import count as count_recipe
    from vlcli.tools.counting import first_stage

    def counted(name: str, stage: str | None) -> dict[str, Any]:
        resolved = load(name, overrides, only=stage, trust=trust)
        return {"recipe": resolved.name, **count_recipe(resolved, stage, answers=answers, output=output, heads=heads)}

    named, overrides = o.split_words(words)
    if not named:
        raise UsageError("Name a recipe.", got="none", hint="list them: vlcli ls recipes")
    names = [one for name in named for one in _expanded(name, len(named) > 1)]
    if len(names) == 1:
        facts = counted(names[0], stage)
        console.out_json(facts) if json_ else _show(names[0], facts)
        return
    rows, failures = [], []
    with console.progress(verbose).task("count", len(names), "recipes") as task:
        for name in names:
            try:  # its first training stage alone: the others are not built
                chosen = stage or first_stage(load(name, overrides, trust=trust))
                rows.append({**counted(name, chosen), "recipe": name} if chosen else {"recipe": name})
            except Exception as error:
                failures.append((name, error))
            task.advance()
    if json_:
        errors = [{"recipe": name, "error": as_vlcli(fault).as_dict()} for name, fault in failures]
        console.out_json({"recipes": [*rows, *errors]})
    elif rows:
        columns = ["recipe", "stage", "model", "with heads", "multiply-accumulates"]
        console.table(columns, [_line(row) for row in rows])
    codes = []
    for name, fault in failures:
        console.err(f"{name} cannot be counted")
        codes.append(report(fault, verbose=verbose))
    if codes:
        raise typer.Exit(codes[0])


def _expanded(name: str, several: bool) -> list[str]:
    # of several, one that does not load is told of in its turn
    from vlcli.recipe.table import is_table, load_table

    try:
        if not is_table(name):
            return [name]
        table = load_table(name, [])
        return [f"{table.reference}:{label}" for label in table.chosen]
    except VlcliError:
        if not several:
            raise
        return [name]


def _line(row: dict[str, Any]) -> list[str]:
    if "stage" not in row:
        return [row["recipe"], "trains nothing", "-", "-", "-"]
    numbers = (row["backbone"], row["total"], row["macs"]["total"])
    return [row["recipe"], row["stage"], *(f"{number:,}" for number in numbers)]


def _show(name: str, facts: dict[str, Any]) -> None:
    def rows(counts: dict[str, Any]) -> list[list[str]]:
        return [[part, f"{number:,}"] for part, number in counts.items()]

    parts = {**facts["parts"], "total": facts["total"]}
    console.table(["part", "parameters"], rows(parts), f"{name}, stage {facts['stage']}")
    passes = {key: value for key, value in facts["macs"].items() if key != "total"}
    console.out("")
    console.table(["pass", "multiply-accumulates"], rows({**passes, "total": facts["macs"]["total"]}))
    if len(facts.get("stages", {})) > 1:
        console.out("")
        cells = [
            [stage, *(row["why"] if row[key] is None else f"{row[key]:,}" for key in ("backbone", "total"))]
            for stage, row in facts["stages"].items()
        ]
        console.table(["stage", "model", "with heads"], cells)
