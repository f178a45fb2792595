"""``vlcli schema``: the JSON Schema of recipes, for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded


@guarded
def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it to this file instead of stdout.", show_default=False)
    ] = None,
    verbose: o.Verbose = 0,
) -> None:
    """Print the JSON Schema of recipes, with which an editor completes keys and marks faults.

    vlcli schema -o recipe.schema.json

    The first line of a recipe tells the YAML plugin of an editor where the file is:

    # yaml-language-server: $schema=recipe.schema.json
    """
    from vlcli.cli import console
    from vlcli.files import write_text
    from vlcli.recipe.json_schema import recipe_schema

    text = json.dumps(recipe_schema(), indent=1)
    if output is None:
        console.out(text)
        return
    write_text(output, text + "\n")
    console.out(str(output))
