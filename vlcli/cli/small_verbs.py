"""``vlcli push``, ``schema`` and ``trust``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vlcli.cli import console
from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.errors import UsageError
from vlcli.files import write_text


@guarded
def push(
    folder: Annotated[Path, typer.Argument(help="Folder of a model card: hub/ of an export stage, or the stage's.")],
    name: Annotated[str, typer.Argument(help="Repository on the hub: OWNER/NAME, or NAME for your own.")],
    public: Annotated[bool, typer.Option("--public", help="Anybody may see it; else you and your team alone.")] = False,
    message: Annotated[str, typer.Option(help="Message of the commit.")] = "Upload by vlcli",
    json_: o.Json = False,
) -> None:
    """Upload a model with its card to the Hugging Face hub (or the one that HF_ENDPOINT names).

    vlcli push runs/quickstart/hub me/nlvr2-shapes
    """
    from vlcli.tools.hub import upload

    address = upload(folder, name, public=public, message=message)
    console.answer(json_, {"url": address}, address)


@guarded
def schema(
    output: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write it to this file instead of stdout.", show_default=False)
    ] = None,
) -> None:
    """Print the JSON Schema of recipes, with which an editor completes keys and marks faults.

    vlcli schema -o recipe.schema.json

    The first line of a recipe tells the YAML plugin of an editor where the file is:

    # yaml-language-server: $schema=recipe.schema.json
    """
    from vlcli.recipe.json_schema import recipe_schema

    text = json.dumps(recipe_schema(), indent=1)
    if output is not None:
        write_text(output, text + "\n")
    console.out(text if output is None else str(output))


@guarded
def trust(
    places: Annotated[
        list[Path] | None, typer.Argument(metavar="FOLDER...", help="Folders, or single Python files.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show what is trusted.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Trust these no more.")] = False,
    json_: o.Json = False,
) -> None:
    """Let recipes run the plugin files that lie in a folder, or show whose may.

    vlcli trust papers/bag

    vlcli trust --list
    """
    from vlcli.recipe import trust as trusting

    if not places and not show:
        raise UsageError("Name a folder to trust.", expected="vlcli trust FOLDER, or vlcli trust --list")
    if remove and not places:
        raise UsageError("Name what is to be trusted no more.", expected="vlcli trust --remove FOLDER")
    for place in places or []:
        changed = trusting.forget(place) if remove else trusting.trust(place)
        console.err(f"{'trusted no more' if remove else 'trusted'}: {changed}")
    kept = [str(path) for path in trusting.trusted()]
    if json_:
        console.out_json({"file": str(trusting.list_file()), "trusted": kept})
    elif show and kept:
        console.table(["trusted"], [[path] for path in kept])
    elif show:
        console.err("nothing is trusted yet: vlcli trust FOLDER")
