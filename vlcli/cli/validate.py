"""``vlcli validate RECIPE``: every fault at once, before anything costs time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded


@guarded
def validate(
    words: o.RecipeAndWords,
    deep: Annotated[
        bool, typer.Option("--deep", help="Import components, check every parameter, try one fake step a stage.")
    ] = False,
    output: o.Output = Path("runs"),
    plugin: o.Plugin = None,
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Check a recipe: structure, names, wiring, files; with --deep everything that can be known beforehand."""
    from vlcli.cli import console
    from vlcli.errors import RecipeError
    from vlcli.recipe.load import load
    from vlcli.recipe.validate import shallow

    o.load_plugins(plugin)
    name, overrides = o.one_recipe(words)
    resolved = load(name, overrides, trust=trust, deep=deep)
    problems = [] if deep else shallow(resolved)  # deep validation tells these beside its own
    if problems:
        raise RecipeError(problems, name)
    if deep:
        from vlcli.recipe import plan
        from vlcli.runner.preflight import preflight

        planner, steps = plan.make(resolved, plan.RunOptions(output))
        preflight(planner, steps, list(resolved.stages), console.progress(verbose))
    if json_:
        console.out_json({"recipe": resolved.name, "valid": True, "deep": deep, "stages": list(resolved.stages)})
    else:
        console.out(f"{name}: valid ({'deep' if deep else 'shallow'}), {_count(len(resolved.stages))}")
        if not deep:
            console.err(f"not checked: options of components, data (vlcli validate {name} --deep checks them)")


def _count(stages: int) -> str:
    return "1 stage" if stages == 1 else f"{stages} stages"
