"""``vlcli features info|verify|merge``: what is in a store, whether it is sound, several as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded

app = typer.Typer(help="Region-feature stores: look, verify, merge.", no_args_is_help=True, rich_markup_mode=None)
Store = Annotated[Path, typer.Argument(help="A store: an HDF5 file, or a folder of them (a stage's folder too).")]


@app.command("info")
@guarded
def info(path: Store, json_: o.Json = False, verbose: o.Verbose = 0) -> None:
    """Counts, widths, size and provenance."""
    from vlcli.cli import console
    from vlcli.features.inspect import info as read_info

    facts = read_info(path)
    if json_:
        console.out_json({"store": facts})
        return
    console.out(f"{facts['path']}: {facts['files']} file(s), {facts['bytes'] / 2**20:.1f} MiB")
    for name, details in facts["sets"].items():
        rows = [[key, str(value)] for key, value in details.items() if not isinstance(value, dict)]
        rows += [
            [f"{key}.{k}", str(v)]
            for key, value in details.items()
            if isinstance(value, dict)
            for k, v in value.items()
        ]
        console.table(["fact", "value"], rows, f"boxes {name}")


@app.command("verify")
@guarded
def verify(path: Store, json_: o.Json = False, quiet: o.Quiet = False, verbose: o.Verbose = 0) -> None:
    """Read every record and check it; exit code 5 where something is wrong."""
    from vlcli.cli import console
    from vlcli.features.inspect import verify as find_faults

    faults = find_faults(path, console.progress(verbose, quiet))
    if json_:
        console.out_json({"path": str(path), "sound": not faults, "faults": [vars(fault) for fault in faults]})
    else:
        console.out("\n".join(map(str, faults)) if faults else f"{path}: sound")
    if faults:
        raise typer.Exit(5)


@app.command("merge")
@guarded
def merge(
    paths: Annotated[list[Path], typer.Argument(help="The shards.")],
    into: Annotated[Path, typer.Option("--into", help="The new file.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json_: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = 0,
) -> None:
    """Join shards into one store."""
    from vlcli.cli import console
    from vlcli.errors import UsageError
    from vlcli.features.merge import merge as join

    if into.exists() and not force:
        raise UsageError("There is a file already.", where=str(into), hint="choose another name, or --force")
    made = join(paths, into, progress=console.progress(verbose, quiet))
    console.out_json({"path": str(made)}) if json_ else console.out(str(made))
