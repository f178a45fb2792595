"""``vlcli data make shapes`` and ``vlcli data stats``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded

app = typer.Typer(help="Data: make a world, look at a recipe's data.", no_args_is_help=True, rich_markup_mode=None)


@app.command("make")
@guarded
def make(
    world: Annotated[str, typer.Argument(help="Which world: shapes.")],
    folder: Annotated[Path, typer.Argument(help="Where to.")],
    words: o.Words = None,
    images: Annotated[int | None, typer.Option("--images", min=20, help="Pictures of the shared set.")] = None,
    size: Annotated[int | None, typer.Option("--size", min=64, help="Side of a picture in pixels.")] = None,
    seed: o.Seed = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes that draw.")] = min(
        4, os.cpu_count() or 1
    ),
    json_: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = 0,
) -> None:
    """Generate a world with annotations in every benchmark's own format.

    vlcli data make shapes DATA --images 4000 captions=3
    """
    from vlcli.cli import console
    from vlcli.data.shapes import make_shapes
    from vlcli.recipe.overrides import parse
    from vlcli.stages.make import world_config

    spec: dict[str, Any] = {"name": world}
    for override in map(parse, words or []):
        spec[".".join(override.keys)] = override.value
    spec |= {key: value for key, value in (("images", images), ("size", size), ("seed", seed)) if value is not None}
    config = world_config(spec, "make")
    counts = make_shapes(folder, config, console.progress(verbose, quiet), workers)
    if json_:
        console.out_json({"path": str(folder), "counts": counts})
        return
    console.table(["what", "how many"], [[name, f"{number:,}"] for name, number in counts.items()])
    console.out(str(folder))


@app.command("stats")
@guarded
def stats(
    words: o.RecipeAndWords,
    stage: Annotated[str | None, typer.Option("--stage", help="One stage alone.")] = None,
    output: o.Output = Path("runs"),
    plugin: o.Plugin = None,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Count examples, pictures and words of every data set that a recipe names."""
    from vlcli.cli import console
    from vlcli.recipe.load import load
    from vlcli.stages.statistics import statistics

    o.load_plugins(plugin)
    name, overrides = o.one_recipe(words)
    rows = statistics(load(name, overrides, only=stage), stage, output)
    if json_:
        console.out_json({"recipe": name, "data": rows})
        return
    columns = ["stage", "data set", "split", "examples", "pictures", "texts", "words"]
    console.table(columns, [[str(row[column]) for column in columns] for row in rows])
