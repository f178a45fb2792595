"""``vlcli data``: make a world, count what a recipe's data hold; packages add commands to the group."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import concepts, unpack, where
from vlcli.cli import options as o
from vlcli.cli.guard import guarded, report
from vlcli.cli.plugged import PluginGroup
from vlcli.plain import comma_list

app = typer.Typer(
    cls=PluginGroup, help="Data: make a world, look at a recipe's data.", no_args_is_help=True, rich_markup_mode=None
)

app.command("concepts")(concepts.concepts)
app.command("unpack")(unpack.unpack)
app.command("where")(where.where)


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
    from vlcli.recipe.overrides import parse
    from vlcli.recipe.stage_record import writing_alone
    from vlcli.stages.make import world_config

    spec: dict[str, Any] = {"name": world}
    for override in map(parse, words or []):
        spec[".".join(override.keys)] = override.value
    spec |= {key: value for key, value in (("images", images), ("size", size), ("seed", seed)) if value is not None}
    config = world_config(spec, "make")
    with writing_alone(folder):
        counts = config.make(folder, console.progress(verbose, quiet), workers)
    if json_:
        console.out_json({"path": str(folder), "counts": counts})
        return
    console.table(["what", "how many"], [[name, f"{number:,}"] for name, number in counts.items()])
    console.out(str(folder))


@app.command("stats")
@guarded
def stats(
    words: o.RecipesAndWords = None,
    stage: Annotated[str | None, typer.Option("--stage", help="One stage alone.")] = None,
    root: Annotated[Path | None, typer.Option("--root", help="LXMERT's Table 1 of a data root instead.")] = None,
    output: o.Output = Path("runs"),
    plugin: o.Plugin = None,
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Count examples, pictures and words of every data set that a recipe names.

    With --root instead of a recipe: the same as `vlcli data composition ROOT`.
    """
    from vlcli import registry
    from vlcli.cli import console
    from vlcli.recipe.load import load
    from vlcli.tools.dataset_counts import dataset_counts

    names, overrides = o.split_words(words)
    if root is not None and not names:
        registry.load("commands", "data.composition")(root, words, json_=json_, verbose=verbose)
        return
    o.load_plugins(plugin)
    name, overrides = o.one_recipe(words)
    rows = dataset_counts(load(name, overrides, only=stage, trust=trust), stage, output)
    errors = [row["error"] for row in rows if "error" in row]
    if json_:
        told = [{**row, "error": row["error"].as_dict()} if "error" in row else row for row in rows]
        console.out_json({"recipe": name, "data": told})
    else:
        _tell_statistics(rows)
    codes = [report(error, verbose=verbose) for error in dict.fromkeys(errors)]
    if codes:
        raise typer.Exit(codes[0])


def _tell_statistics(rows: list[dict[str, Any]]) -> None:
    from vlcli import registry
    from vlcli.cli import console

    columns = ["stage", "data set", "split", "examples", "pictures", "texts", "words"]
    console.table(columns, [[str(row.get(column, "cannot be read")) for column in columns] for row in rows])
    for line in dict.fromkeys(f"{row['stage']}: {line}" for row in rows for line in row.get("notes", ())):
        console.out(line)
    for row in rows:
        if "composition" in row:
            titles = registry.load("datasets", row["data set"]).composition_titles
            console.counts(row["composition"], titles, f"{row['stage']}: {row['data set']}")


@app.command("coverage")
@guarded
def coverage(
    answers: Annotated[Path, typer.Argument(help="Answers of a task, e.g. trainval_label2ans.json.")],
    table: Annotated[Path, typer.Argument(help="The table they are looked for in, e.g. all_ans.json.")],
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Count the answers of one table that another one has, as fine-tuning takes over the rows of an answer head."""
    from vlcli.cli import console
    from vlcli.data.answers import mapped, read_answers

    wanted = read_answers(answers).strings
    count, missing = mapped(wanted, read_answers(table))
    if json_:
        console.out_json({"mapped": count, "answers": len(wanted), "missing": missing})
        return
    console.out(f"{count:,} of {len(wanted):,} answers have a row")
    if missing:
        console.out(f"without one: {comma_list(map(repr, missing), 10)}")
