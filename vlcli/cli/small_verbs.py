"""``vlcli validate``, ``push``, ``schema`` and ``trust``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import console, options
from vlcli.cli.guard import guarded
from vlcli.errors import Problem, RecipeError, UsageError
from vlcli.files import write_text
from vlcli.recipe import plan
from vlcli.recipe.locate import Resolved
from vlcli.recipe.validate import shallow


@guarded
def validate(
    words: options.RecipeAndWords,
    deep: Annotated[
        bool, typer.Option("--deep", help="Import components, check every parameter, try one fake step a stage.")
    ] = False,
    output: options.Output = Path("runs"),
    yes: options.Yes = False,
    plugin: options.Plugin = None,
    trust: options.Trust = False,
    json_: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """Check a recipe: structure, names, wiring, files; with --deep everything that can be known beforehand."""
    from vlcli.recipe.load import load
    from vlcli.recipe.table import is_table, load_table

    name, overrides = options.one_name(words)
    if is_table(name):
        table = load_table(name, overrides or [], trust=trust, deep=deep, many=yes)
        problems: list[Problem] = []
        rows = []
        for label in table.chosen:
            try:
                _check(table.member(label), deep, output, verbose)
                rows.append(label)
            except RecipeError as error:
                problems += [replace(one, key=f"{label}: {one.key}") for one in error.problems]
        if problems:
            raise RecipeError(problems, table.reference)
        facts: dict[str, Any] = {"recipe": table.name, "rows": rows}
        count, unit = len(rows), "row"
    else:
        resolved = load(name, overrides, trust=trust, deep=deep)
        _check(resolved, deep, output, verbose)
        facts, count, unit = {"recipe": resolved.name, "stages": list(resolved.stages)}, len(resolved.stages), "stage"
    if json_:
        console.out_json({**facts, "valid": True, "deep": deep})
        return
    console.out(f"{name}: valid ({'deep' if deep else 'shallow'}), {count} {unit}{'s' * (count != 1)}")
    if not deep:
        console.err(f"not checked: options of components, data (vlcli validate {name} --deep checks them)")


def _check(resolved: Resolved, deep: bool, output: Path, verbose: int) -> None:

    if not deep:
        if problems := shallow(resolved):
            raise RecipeError(problems, resolved.reference)
        return
    from vlcli.runner.preflight import preflight

    planner, steps = plan.make(resolved, plan.RunOptions(output))
    for line in preflight(planner, steps, list(resolved.stages), console.progress(verbose)):
        console.err(line)


@guarded
def push(
    folder: Annotated[Path, typer.Argument(help="Folder of a model card: hub/ of an export stage, or the stage's.")],
    name: Annotated[str, typer.Argument(help="Repository on the hub: OWNER/NAME, or NAME for your own.")],
    public: Annotated[bool, typer.Option("--public", help="Anybody may see it; else you and your team alone.")] = False,
    message: Annotated[str, typer.Option(help="Message of the commit.")] = "Upload by vlcli",
    json_: options.Json = False,
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
    remove: Annotated[bool, typer.Option("--remove", help="No longer trust these.")] = False,
    json_: options.Json = False,
) -> None:
    """Let recipes run the plugin files that lie in a folder, or show whose may.

    vlcli trust papers/bag

    vlcli trust --list
    """
    from vlcli.recipe import trust as trusting

    if not places and not show:
        raise UsageError("Name a folder to trust.", expected="vlcli trust FOLDER, or vlcli trust --list")
    if remove and not places:
        raise UsageError("Name the folder or file that is no longer trusted.", expected="vlcli trust --remove FOLDER")
    for place in places or []:
        changed = trusting.forget(place) if remove else trusting.trust(place)
        console.err(f"{'no longer trusted' if remove else 'trusted'}: {changed}")
    kept = [str(path) for path in trusting.trusted()]
    if json_:
        console.out_json({"file": str(trusting.list_file()), "trusted": kept})
    elif show and kept:
        console.table(["trusted"], [[path] for path in kept])
    elif show:
        console.err("nothing is trusted yet: vlcli trust FOLDER")
