"""``vlcli plan RECIPE --gpus N``: what a training will cost on a cluster, by arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.cli.words import size
from vlcli.errors import UsageError

_UNITS = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


@guarded
def plan(
    words: o.RecipesToLookAt,
    gpus: Annotated[int, typer.Option("--gpus", min=1, max=100_000, help="GPUs, a process each.")] = 1,
    memory: Annotated[str, typer.Option("--memory", help="Of one GPU: 80GB.")] = "80GB",
    stage: Annotated[str | None, typer.Option("--stage", help="A training stage; default: the first.")] = None,
    machine: Annotated[int, typer.Option("--per-machine", min=1, help="GPUs of one machine.")] = 8,
    examples: Annotated[int | None, typer.Option("--examples", min=1, help="Examples of the data.")] = None,
    tflops: Annotated[float | None, typer.Option("--tflops", min=0.001, help="That one GPU reaches.")] = None,
    link: Annotated[float | None, typer.Option("--link", min=0.001, help="GB/s between GPUs.")] = None,
    disk: Annotated[str | None, typer.Option("--disk", help="Written in a second: 500MB.")] = None,
    rehearse: Annotated[bool, typer.Option("--rehearse", help="Count a step of two examples, taken here.")] = False,
    output: o.Output = Path("runs"),
    plugin: o.Plugin = None,
    trust: o.Trust = False,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Say what a training stage takes on several GPUs: memory by part, steps and reads a second, checkpoints."""
    from vlcli.cli import console
    from vlcli.recipe.load import load
    from vlcli.tools.training_cost import Wanted, training_cost

    o.load_plugins(plugin)
    names, overrides = o.some_recipes(words)
    if len(names) != 1:
        raise UsageError("A plan is of one recipe.", got=", ".join(names), expected="vlcli plan RECIPE --gpus 8")
    resolved = load(names[0], overrides, only=stage, trust=trust)
    rate = None if disk is None else _bytes(disk, "--disk")
    wanted = Wanted(gpus, _bytes(memory, "--memory"), machine, examples, tflops, link, rate, output, rehearse)
    found = training_cost(resolved, wanted, stage)
    if json_:
        console.out_json({**found, **{key: [cost._asdict() for cost in found[key]] for key in ("memory", "time")}})
        return
    title = f"{names[0]}, stage {found['stage']}, {gpus} GPU{'s' * (gpus > 1)} of {memory}"
    console.table(["memory of a GPU", "", "from", "how"], [_row(cost) for cost in found["memory"]], title)
    console.out("")
    console.table(["time and traffic", "", "from", "how"], [_row(cost) for cost in found["time"]])


def _bytes(text: str, option: str) -> float:
    """``80GB`` as bytes.

    Raises:
        UsageError: it is no size.
    """
    unit = text[-2:].upper()
    try:
        count = float(text[:-2]) * _UNITS[unit]
    except (KeyError, ValueError):
        count = 0.0
    if not 0 < count < 1e18:
        raise UsageError("This is no size.", where=option, got=text, expected="a number and KB, MB, GB or TB: 80GB")
    return count


def _row(cost: Any) -> list[str]:
    return [cost.name, _shown(cost.value, cost.unit), cost.source, cost.how]


def _shown(value: float, unit: str) -> str:
    """A number with its unit, as people write it."""
    if unit in ("B", "B/s"):
        return size(value) + unit[1:]
    if unit == "s":
        if value >= 5400:
            return f"{value / 3600:,.1f} h"
        return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"
    if unit == "FLOP":
        return f"{value / 1e9:,.3g} GFLOP"
    return f"{value:,.3g} {unit}".strip() if value < 1000 else f"{value:,.0f} {unit}".strip()
