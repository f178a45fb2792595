"""``vlcli trust FOLDER``: whose recipes may run the Python files that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded


@guarded
def trust(
    places: Annotated[
        list[Path] | None, typer.Argument(metavar="FOLDER...", help="Folders, or single Python files.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show what is trusted.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Trust these no more.")] = False,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Let recipes run the plugin files that lie in a folder, or show whose may.

    vlcli trust papers/bag

    vlcli trust --list
    """
    from vlcli.cli import console
    from vlcli.errors import UsageError
    from vlcli.recipe import trust as trusting

    if not places and not show:
        raise UsageError("Name a folder to trust.", expected="vlcli trust FOLDER, or vlcli trust --list")
    if remove and not places:
        raise UsageError("Name what is to be trusted no more.", expected="vlcli trust --remove FOLDER")
    for place in places or []:
        changed = trusting.forget(place) if remove else trusting.trust(place)
        console.err(f"{'trusted no more' if remove else 'trusted'}: {changed}")
    kept = [str(place) for place in trusting.trusted()]
    if json_:
        console.out_json({"file": str(trusting.list_file()), "trusted": kept})
    elif show and kept:
        console.table(["trusted"], [[place] for place in kept])
    elif show:
        console.err("nothing is trusted yet: vlcli trust FOLDER")
