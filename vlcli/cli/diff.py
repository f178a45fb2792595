"""``vlcli diff A B``: compares two recipes or two runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import console, options
from vlcli.cli.guard import guarded
from vlcli.cli.listing import published_of
from vlcli.cli.words import number
from vlcli.recipe.locate import is_recipe

if TYPE_CHECKING:
    from vlcli.metrics.rows import Paired
    from vlcli.tools.differences import Comparison

_Side = Annotated[
    str,
    typer.Argument(
        help="A recipe's name or file, a run (its folder, or its name under runs/), or RUN/STAGE.",
        autocompletion=options.complete_recipes,
    ),
]
_WIDEST = 60


@guarded
def diff(
    a: _Side,
    b: _Side,
    every: Annotated[bool, typer.Option("--all", help="Also metrics that are the same in both.")] = False,
    output: options.Output = Path("runs"),
    json_: options.Json = False,
) -> None:
    """Compare two recipes or two runs: settings, versions, data, and metrics with paired 95 % intervals.

    vlcli diff quickstart mine.yaml

    vlcli diff runs/quickstart runs/quickstart-1a2b3c4d

    vlcli diff quickstart/test quickstart/scratch-test
    """
    from vlcli.tools.differences import Comparison, compare_runs, compare_settings
    from vlcli.tools.run_folder import find_run, read_run

    # a registered recipe's name means the recipe, though a run of this name lies under runs/: runs/NAME is that
    recipes = [name for name in (a, b) if not Path(name).expanduser().is_dir() and is_recipe(name)]
    runs = {name: read_run(find_run(name, output)) for name in (a, b) if name not in recipes}
    if recipes:
        values = [_recipe(name) if name in recipes else runs[name].recipe for name in (a, b)]
        comparison = Comparison([a, b], compare_settings(values))
    else:
        comparison = compare_runs([runs[a], runs[b]])
    for fault in comparison.faults:
        console.err(f"warning: {fault}")
    if json_:
        console.out_json(_document(comparison))
    else:
        _tell(comparison, every)


def _recipe(name: str) -> dict[str, Any]:
    from vlcli.recipe.load import load
    from vlcli.recipe.table import is_table, load_table

    if not is_table(name):
        value: dict[str, Any] = load(name, plugins=False).document.value
        return {**value, "published": _told(published_of(name))}
    table = load_table(name, [], plugins=False)
    levels = {label: [level.value for level in table.rows[label].levels] for label in table.chosen}
    rows = {label: {key: item for value in values for key, item in value.items()} for label, values in levels.items()}
    for label, row in table.rows.items():
        if row.published:
            rows[label]["published"] = _told({key: asdict(one) for key, one in row.published.items()})
    return {**table.document.value, "rows": rows}


def _told(published: dict[str, Any]) -> dict[str, str]:
    return {key: f"{one['value']:g} on {one['split']} (table {one['table']})" for key, one in published.items()}


def _document(comparison: Comparison) -> dict[str, Any]:
    metrics = {
        stage: [{**asdict(row), "difference": row.difference} for row in sides[0]]
        for stage, sides in comparison.metrics.items()
    }
    labels = dict(zip(("first", "second"), comparison.labels, strict=True))
    parts = {
        name: [{"key": row.key, "first": row.values[0], "second": row.values[1]} for row in getattr(comparison, name)]
        for name in ("settings", "versions", "data")
    }
    return {**labels, **parts, "metrics": metrics, "faults": comparison.faults}


def _tell(comparison: Comparison, every: bool) -> None:
    parts = {name: getattr(comparison, name) for name in ("settings", "versions", "data")}
    for title, part in parts.items():
        if part:
            rows = [[row.key, *map(_cell, row.values)] for row in part]
            console.table([title, *comparison.labels], rows)
            console.out("")
    rows = [
        [f"{stage}: {row.name}", *_numbers(row)]
        for stage, sides in comparison.metrics.items()
        for row in sides[0]
        if every or row.difference != 0
    ]
    if rows:
        console.table(["metrics", *comparison.labels, "difference", "95 % interval", "examples"], rows)
    elif not any(parts.values()):
        console.out("no difference")
    elif comparison.metrics:
        console.out("metrics: all the same")


def _numbers(row: Paired) -> list[str]:
    sides = ["-" if value is None else number(value) for value in (row.first, row.second)]
    change = "" if row.difference is None else f"{row.difference:+.3f}"
    between = "" if row.low is None or row.high is None else f"{row.low:+.3f} to {row.high:+.3f}"
    return [*sides, change, between, str(row.count or "")]


def _cell(value: Any) -> str:
    text = "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
