"""``vlcli plan RECIPE --gpus N``: estimates what a training costs on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vlcli.cli import console
from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.cli.words import size
from vlcli.errors import UsageError

_UNITS = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


@guarded
def plan(
    words: o.RecipesToLookAt,
    gpus: Annotated[int, typer.Option(min=1, max=100_000, help="GPUs, a process each.")] = 1,
    memory: Annotated[str, typer.Option(help="Of one GPU: 80GB.")] = "80GB",
    stage: o.Stage = None,
    per_machine: Annotated[int, typer.Option(min=1, help="GPUs of one machine.")] = 8,
    examples: Annotated[int | None, typer.Option(min=1, help="Examples of the data.")] = None,
    tflops: Annotated[float | None, typer.Option(min=0.001, help="That one GPU reaches.")] = None,
    link: Annotated[float | None, typer.Option(min=0.001, help="GB/s between GPUs.")] = None,
    disk: Annotated[str | None, typer.Option(help="Written in a second: 500MB.")] = None,
    rehearse: Annotated[bool, typer.Option("--rehearse", help="Count a step of two examples, taken here.")] = False,
    output: o.Output = Path("runs"),
    plugin: o.Plugin = None,
    trust: o.Trust = False,
    json_: o.Json = False,
) -> None:
    """Say what a training stage takes on several GPUs: memory by part, steps and reads a second, checkpoints."""
    from vlcli.recipe.load import load
    from vlcli.tools.training_cost import Wanted, training_cost

    name, overrides = o.one_name(words)
    resolved = load(name, overrides, only=stage, trust=trust)
    rate = None if disk is None else _bytes(disk, "--disk")
    wanted = Wanted(gpus, _bytes(memory, "--memory"), per_machine, examples, tflops, link, rate, output, rehearse)
    costs = training_cost(resolved, wanted, stage)
    parts = {key: costs[key] for key in ("memory", "time")}
    if json_:
        console.out_json({**costs, **{key: [cost._asdict() for cost in part] for key, part in parts.items()}})
        return
    cells = {
        key: [[cost.name, _shown(cost.value, cost.unit), cost.source, cost.how] for cost in part]
        for key, part in parts.items()
    }
    title = f"{name}, stage {costs['stage']}, {gpus} GPU{'s' * (gpus > 1)} of {memory}"
    console.table(["memory of a GPU", "", "from", "how"], cells["memory"], title)
    console.out("")
    console.table(["time and traffic", "", "from", "how"], cells["time"])


def _bytes(text: str, option: str) -> float:
    unit = text[-2:].upper()
    try:
        count = float(text[:-2]) * _UNITS[unit]
    except (KeyError, ValueError):
        count = 0.0
    if not 0 < count < 1e18:
        raise UsageError("This is no size.", where=option, got=text, expected="a number and KB, MB, GB or TB: 80GB")
    return count


def _shown(value: float, unit: str) -> str:
    if unit in ("B", "B/s"):
        return size(value) + unit[1:]
    if unit == "s":
        if value >= 5400:
            return f"{value / 3600:,.1f} h"
        return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"
    if unit == "FLOP":
        return f"{value / 1e9:,.3g} GFLOP"
    return f"{value:,.3g} {unit}".strip() if value < 1000 else f"{value:,.0f} {unit}".strip()
