"""``vlcli table RUN...``: shows what runs measured, with intervals, differences and published numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vlcli.cli import console, options
from vlcli.cli.guard import guarded
from vlcli.errors import UsageError
from vlcli.files import write_text

if TYPE_CHECKING:
    from vlcli.tables.summary import Summary

_RUNS = "Runs (folders, or names under runs/), stages (RUN/STAGE), or the table.json of a recipe with rows."


@guarded
def table(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help=_RUNS)],
    form: Annotated[str, typer.Option("--format", help="text, json, csv, latex, markdown or model-index.")] = "text",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file instead of stdout.")] = None,
    plot: Annotated[
        list[Path] | None, typer.Option(help="Draw a forest plot (of a grid, a heat map): .svg or .png.")
    ] = None,
    metric: Annotated[list[str] | None, typer.Option(help="Metrics to show, patterns too ('accuracy/*').")] = None,
    reference: Annotated[str | None, typer.Option(help="Label of the row that the others are compared with.")] = None,
    output: options.Output = Path("runs"),
    json_: options.Json = False,
) -> None:
    """Show what runs measured: means, 95 % intervals, published numbers, paired differences to a reference row.

    vlcli table quickstart

    vlcli table quickstart quickstart-1a2b3c4d --metric accuracy

    vlcli table tiny-irpe --format latex -o table4.tex --plot table4.svg
    """
    from vlcli.tables.outputs import FORMATS, write_plot
    from vlcli.tables.results import write_results
    from vlcli.tables.summary import summarise
    from vlcli.tables.text import aligned
    from vlcli.tools.run_tables import collect, model_index

    form = "json" if json_ else form
    known = ["text", "json", *FORMATS, "model-index"]
    if form not in known:
        raise UsageError("There is no such format of a table.", got=form, expected=", ".join(known))
    results = collect(runs, output, reference)
    summary = summarise(results, metric or ())
    forms: dict[str, Callable[[Summary], str]] = {**FORMATS, "model-index": partial(model_index, results)}
    if out is not None:
        if form == "json":
            write_results(results, out, statistics=summary.as_dict())
        else:
            write_text(out, aligned(summary) if form == "text" else forms[form](summary))
        console.out(str(out))
    elif form == "json":
        console.out_json({**results.as_dict(), "statistics": summary.as_dict()})
    elif form == "text":
        tell(summary)
    else:
        console.out(forms[form](summary).rstrip("\n"))
    for path in plot or []:
        console.err(f"plot: {write_plot(summary, path)}")


def tell(summary: Summary) -> None:
    """Writes a table to stdout: the result in words first, notes below."""
    from vlcli.tables.text import blocks

    for line in [*summary.conclusions, *[""][: len(summary.conclusions)]]:
        console.out(line)
    for number, block in enumerate(blocks(summary)):
        if number:
            console.out("")
        console.table(block.columns, [cells for _, cells in block.rows], block.title)
        for note in block.notes:
            console.out(note)
    for note in summary.notes:
        console.out(f"{note[0].upper()}{note[1:]}.")
