"""``vlcli push FOLDER NAME``: upload a folder that ``format: hub`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded


@guarded
def push(
    folder: Annotated[Path, typer.Argument(help="Folder of a model card: hub/ of an export stage, or the stage's.")],
    name: Annotated[str, typer.Argument(help="Repository on the hub: OWNER/NAME, or NAME for your own.")],
    public: Annotated[bool, typer.Option("--public", help="Anybody may see it; else you and your team alone.")] = False,
    message: Annotated[str, typer.Option("--message", help="Message of the commit.")] = "Upload by vlcli",
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Upload a model with its card to the Hugging Face hub (or the one that HF_ENDPOINT names).

    vlcli push runs/quickstart/hub me/nlvr2-shapes
    """
    from vlcli.cli import console
    from vlcli.tools.hub import upload

    address = upload(folder, name, public=public, message=message)
    if json_:
        console.out_json({"url": address})
    else:
        console.out(address)
