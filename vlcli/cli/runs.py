"""``vlcli runs``: the folders of runs, their state and size, and what can go."""

from __future__ import annotations

from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded

if TYPE_CHECKING:
    from vlcli.recipe.litter import Litter, Run


@guarded
def runs(
    clean: Annotated[bool, typer.Option("--clean", help="Remove what can go, after asking.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --clean: do not ask.")] = False,
    output: o.Output = Path("runs"),
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Run folders with state, size and age, and what can go: leftovers of kills, damaged or replaced parts.

    vlcli runs

    vlcli runs --clean --yes
    """
    from vlcli.cli import console
    from vlcli.errors import DataError
    from vlcli.recipe import litter

    if not output.is_dir():
        raise DataError("There is no such folder of runs.", where=str(output), hint="make a run: vlcli run quickstart")
    found = litter.look(output)
    rubbish = [item for run in found for item in run.litter]
    gone = _clean(rubbish, yes or json_) if clean else []
    if json_:
        removed = {str(item.path) for item in gone}
        console.out_json({"output": str(output), "runs": [_row(run, removed) for run in found]})
        return
    _tell(found)
    for item in [] if clean else rubbish:
        console.out(f"can go: {item.path}  {_bytes(item.size)}  {item.why}")
    if rubbish and not clean:
        console.err("remove what can go: vlcli runs --clean")


def _clean(rubbish: list[Litter], sure: bool) -> list[Litter]:
    """Remove it; returns what was removed."""
    from vlcli.cli import console
    from vlcli.recipe import litter

    if not rubbish:
        console.err("nothing to remove")
        return []
    for item in rubbish:
        console.err(f"{item.path}  {_bytes(item.size)}  {item.why}")
    total = _bytes(sum(item.size for item in rubbish))
    if not sure and not typer.confirm(f"Remove these {len(rubbish)}, {total}?", err=True):
        return []
    for item in rubbish:
        litter.remove(item.path)
    console.err(f"removed {len(rubbish)}, {total}")
    return rubbish


def _row(run: Run, removed: set[str]) -> dict[str, Any]:
    items = [{"path": str(item.path), "bytes": item.size, "why": item.why} for item in run.litter]
    items = [{**item, "removed": item["path"] in removed} for item in items]
    row = {"folder": str(run.folder), "state": run.state, "stages": run.stages, "bytes": run.size}
    return {**row, "age_seconds": round(time() - run.changed), "can_go": items}


def _tell(found: list[Run]) -> None:
    from vlcli.cli import console

    rows = []
    for run in found:
        done = sum(state == "done" for state in run.stages.values())
        rubbish = sum(item.size for item in run.litter)
        facts = [str(run.folder), run.state, f"{done} of {len(run.stages)}", _bytes(run.size)]
        rows.append([*facts, _age(time() - run.changed), _bytes(rubbish) if run.litter else ""])
    console.table(["run", "state", "stages done", "size", "age", "can go"], rows)


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _age(seconds: float) -> str:
    for unit, size in {"d": 86400, "h": 3600, "min": 60}.items():
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
