"""``vlcli diff A B``: what differs between two recipes or two runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded

if TYPE_CHECKING:
    from vlcli.metrics.rows import Paired
    from vlcli.recipe.table import RowTable
    from vlcli.tools.differences import Comparison, Difference
    from vlcli.tools.run_folder import RunFacts

_SIDE = "A recipe's name or file, a run (its folder, or its name under runs/), or RUN/STAGE."
_WIDEST = 60


@guarded
def diff(
    first: Annotated[str, typer.Argument(metavar="A", help=_SIDE, autocompletion=o.complete_recipes)],
    second: Annotated[str, typer.Argument(metavar="B", help=_SIDE, autocompletion=o.complete_recipes)],
    every: Annotated[bool, typer.Option("--all", help="Also metrics that are the same in both.")] = False,
    output: o.Output = Path("runs"),
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Compare two recipes or two runs: settings, versions, data, and metrics with paired 95 % intervals.

    vlcli diff quickstart mine.yaml

    vlcli diff runs/quickstart runs/quickstart-1a2b3c4d

    vlcli diff quickstart/test quickstart/scratch-test
    """
    from vlcli.cli import console

    found = _compare(first, second, output)
    for fault in found.faults:
        console.err(f"warning: {fault}")
    if json_:
        console.out_json(_document(found))
    else:
        _tell(found, every)


def _compare(first: str, second: str, output: Path) -> Comparison:
    from vlcli.tools.differences import Comparison, compare_runs, compare_settings

    runs = [_run(name, output) for name in (first, second)]
    known = [run for run in runs if run is not None]
    if len(known) == 2:
        return compare_runs(known)
    recipes = [_recipe(name) if run is None else run.recipe for name, run in zip((first, second), runs, strict=True)]
    return Comparison([first, second], compare_settings(recipes))


def _run(name: str, output: Path) -> RunFacts | None:
    """The run of this name; None where it is the name of a recipe.

    A registered recipe's name means the recipe, though a run of this name lies under ``runs/``: ``runs/NAME`` is that.
    """
    from vlcli.recipe.locate import is_recipe
    from vlcli.tools.run_folder import find_run, read_run

    if not Path(name).expanduser().is_dir() and is_recipe(name):
        return None
    return read_run(find_run(name, output))


def _recipe(name: str) -> dict[str, Any]:
    from vlcli.recipe.load import load
    from vlcli.recipe.table import is_table, load_table

    if is_table(name):
        table = load_table(name, [], plugins=False)
        return {**table.document.value, "rows": {label: _settings(table, label) for label in table.chosen}}
    found: dict[str, Any] = load(name, plugins=False).document.value
    return found


def _settings(table: RowTable, label: str) -> dict[str, Any]:
    """What a row changes of its table's recipe, as it is written."""
    return {key: value for level in table.rows[label].levels for key, value in level.value.items()}


def _document(found: Comparison) -> dict[str, Any]:
    def rows(part: list[Difference]) -> list[dict[str, Any]]:
        return [{"key": row.key, "first": row.values[0], "second": row.values[1]} for row in part]

    metrics = {
        stage: [{**asdict(row), "difference": row.difference} for row in sides[0]]
        for stage, sides in found.metrics.items()
    }
    sides = dict(zip(("first", "second"), found.labels, strict=True))
    parts = {name: rows(getattr(found, name)) for name in ("settings", "versions", "data")}
    return {**sides, **parts, "metrics": metrics, "faults": found.faults}


def _tell(found: Comparison, every: bool) -> None:
    from vlcli.cli import console

    for title, part in {"settings": found.settings, "versions": found.versions, "data": found.data}.items():
        if part:
            rows = [[row.key, *map(_cell, row.values)] for row in part]
            console.table([title, *found.labels], rows)
            console.out("")
    rows = [
        [f"{stage}: {row.name}", *_numbers(row)]
        for stage, sides in found.metrics.items()
        for row in sides[0]
        if every or row.difference != 0
    ]
    if rows:
        console.table(["metrics", *found.labels, "difference", "95 % interval", "examples"], rows)
    elif not (found.settings or found.versions or found.data):
        console.out("no difference")
    elif found.metrics:
        console.out("metrics: all the same")


def _numbers(row: Paired) -> list[str]:
    from vlcli.cli.scores import number

    sides = ["-" if value is None else number(value) for value in (row.first, row.second)]
    change = "" if row.difference is None else f"{row.difference:+.3f}"
    between = "" if row.low is None or row.high is None else f"{row.low:+.3f} to {row.high:+.3f}"
    return [*sides, change, between, str(row.count or "")]


def _cell(value: Any) -> str:
    """A setting in one cell; ``-`` where a side has no such key."""
    text = "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
