"""``vlcli data unpack``: pictures inside a table become files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded


@guarded
def unpack(
    source: Annotated[Path, typer.Argument(help="A Parquet or Arrow file, or a folder of Hugging Face's datasets.")],
    into: Annotated[Path, typer.Option("--into", help="The folder to make: images/ and a .jsonl for each split.")],
    max_pixels: Annotated[
        int, typer.Option("--max-pixels", min=1, max=178, help="Largest picture, in millions of pixels.")
    ] = 178,
    json_: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = 0,
) -> None:
    """Write pictures that lie inside a table to files, with the other columns as JSON lines.

    vlcli data unpack photos.parquet --into photos
    """
    from vlcli.cli import console
    from vlcli.recipe.stage_record import writing_alone
    from vlcli.tools.unpacking import unpack as write_out

    with writing_alone(into):
        found = write_out(source, into, max_pixels * 1_000_000, console.progress(verbose, quiet))
    if json_:
        console.out_json({"path": str(into), **vars(found)})
        return
    console.table(["table", "rows"], [[f"{name}.jsonl", f"{count:,}"] for name, count in found.tables.items()])
    console.out(f"{found.pictures:,} pictures in {into / 'images'}")
    for where, why in list(found.bad.items())[:5]:
        console.err(f"left out {where}: {why}")
    if len(found.bad) > 5:
        console.err(f"left out {len(found.bad) - 5:,} more rows")
    console.out(f"next: vlcli init {into} -o first.yaml")
