"""``vlcli runs``: lists the folders of runs, and removes what can go."""

from __future__ import annotations

from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import console
from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.cli.words import age, number, size
from vlcli.errors import DataError

if TYPE_CHECKING:
    from vlcli.recipe.leftovers import Leftover, Run


@guarded
def runs(
    clean: Annotated[bool, typer.Option("--clean", help="Remove what can go, after asking.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --clean: do not ask.")] = False,
    output: o.Output = Path("runs"),
    json_: o.Json = False,
) -> None:
    """Run folders with state, main metric, size and age, and what can go: leftovers of kills, replaced parts.

    vlcli runs

    vlcli runs --clean --yes
    """
    from vlcli.recipe import leftovers

    if not output.is_dir():
        raise DataError("There is no such folder of runs.", where=str(output), hint="make a run: vlcli run quickstart")
    found = leftovers.look(output)
    rubbish = [item for run in found for item in run.leftovers]
    gone = _clean(found, rubbish, yes or json_) if clean else []
    if json_:
        removed = {str(item.path) for item in gone}
        console.out_json({"output": str(output), "runs": [_row(run, removed) for run in found]})
        return
    _tell(found)
    for item in [] if clean else rubbish:
        console.out(f"can go: {item.path}  {size(item.size)}  {item.why}")
    if rubbish and not clean:
        console.err("remove what can go: vlcli runs --clean")


def _clean(found: list[Run], rubbish: list[Leftover], sure: bool) -> list[Leftover]:
    # where no run has begun in the folder meanwhile
    from vlcli.recipe import leftovers, run_state

    if not rubbish:
        console.err("nothing to remove")
        return []
    for item in rubbish:
        console.err(f"{item.path}  {size(item.size)}  {item.why}")
    total = size(sum(item.size for item in rubbish))
    if not sure and not typer.confirm(f"Remove these {len(rubbish)}, {total}?", err=True):
        return []
    gone = [item for run in found if not run_state.is_alive(run.folder) for item in run.leftovers]
    for item in gone:
        leftovers.remove(item.path)
    console.err(f"removed {len(gone)}, {size(sum(item.size for item in gone))}")
    return gone


def _row(run: Run, removed: set[str]) -> dict[str, Any]:
    from vlcli.tools.table import main_number

    items = [{"path": str(item.path), "bytes": item.size, "why": item.why} for item in run.leftovers]
    items = [{**item, "removed": item["path"] in removed} for item in items]
    row = {"folder": str(run.folder), "state": run.state, "stages": run.stages, "bytes": run.size}
    pid = run.progress.pid if run.progress is not None and run.state == "running" else None
    main = main_number(run.folder)
    metric = None if main is None else dict(zip(("row", "metric", "value"), main, strict=True))
    return {**row, "pid": pid, "main": metric, "age_seconds": round(time() - run.changed), "can_go": items}


def _tell(found: list[Run]) -> None:
    from vlcli.tools.table import main_number

    rows = []
    for run in found:
        state = run.state
        if state == "running" and run.progress is not None and run.progress.status == "running":
            state = f"running ({run.progress.pid})"
        done = f"{sum(stage == 'done' for stage in run.stages.values())} of {len(run.stages)}"
        main = main_number(run.folder)
        metric = "" if main is None else f"{main[0]}: {main[1]} {number(main[2])}"
        rubbish = size(sum(item.size for item in run.leftovers)) if run.leftovers else ""
        rows.append([str(run.folder), state, done, metric, size(run.size), age(time() - run.changed), rubbish])
    console.table(["run", "state", "stages done", "metric", "size", "age", "can go"], rows)
    if any(run.state == "running" for run in found):
        console.err("watch a running one: vlcli follow RUN")
