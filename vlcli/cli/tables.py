"""``vlcli table RUN...``: what runs measured, as a table with intervals, differences and published numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded

if TYPE_CHECKING:
    from vlcli.tables.results import TableResults
    from vlcli.tables.summary import Summary

_RUNS = "Runs (folders, or names under runs/), stages (RUN/STAGE), or the table.json of a recipe with rows."


@guarded
def table(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help=_RUNS)],
    form: Annotated[str, typer.Option("--format", help="text, json, csv, latex or markdown.")] = "text",
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write to this file instead of stdout.")] = None,
    plot: Annotated[
        list[Path] | None, typer.Option("--plot", help="Draw a forest plot (of a grid, a heat map): .svg or .png.")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="Metrics to show, patterns too ('accuracy/*').")
    ] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", help="Label of the row that the others are compared with.")
    ] = None,
    output: o.Output = Path("runs"),
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Show what runs measured: means, 95 % intervals, published numbers, paired differences to a reference row.

    vlcli table quickstart

    vlcli table quickstart quickstart-1a2b3c4d --metric accuracy

    vlcli table tiny-irpe --format latex -o table4.tex --plot table4.svg
    """
    from vlcli.cli import console
    from vlcli.errors import UsageError
    from vlcli.tables.outputs import FORMATS, write_plot
    from vlcli.tables.summary import summarise
    from vlcli.tools.run_tables import collect

    form = "json" if json_ else form
    known = ["text", "json", *FORMATS]
    if form not in known:
        raise UsageError("There is no such format of a table.", got=form, expected=", ".join(known))
    found = collect(runs, output, reference)
    made = summarise(found, metric or ())
    if out is not None:
        _write(found, made, form, out)
    elif form == "json":
        console.out_json(document(found, made))
    elif form == "text":
        tell(made)
    else:
        console.out(FORMATS[form](made).rstrip("\n"))
    for path in plot or []:
        console.err(f"plot: {write_plot(made, path)}")


def _write(found: TableResults, made: Summary, form: str, path: Path) -> None:
    from vlcli.cli import console
    from vlcli.files import write_text
    from vlcli.tables.outputs import FORMATS
    from vlcli.tables.results import write_results
    from vlcli.tables.text import aligned

    if form == "json":
        write_results(found, path, statistics=made.as_dict())
    else:
        write_text(path, aligned(made) if form == "text" else FORMATS[form](made))
    console.out(str(path))


def document(found: TableResults, made: Summary) -> dict[str, Any]:
    """A table for ``--json``: the runs of its rows, and the statistics."""
    return {**found.as_dict(), "statistics": made.as_dict()}


def tell(made: Summary) -> None:
    """A table on stdout: the result in words first, what a reader must know below."""
    from vlcli.cli import console
    from vlcli.tables.text import blocks

    for line in [*made.conclusions, *[""][: len(made.conclusions)]]:
        console.out(line)
    for number, block in enumerate(blocks(made)):
        if number:
            console.out("")
        console.table(block.columns, [cells for _, cells in block.rows], block.title)
        for note in block.notes:
            console.out(note)
    for note in made.notes:
        console.out(f"{note[0].upper()}{note[1:]}.")
