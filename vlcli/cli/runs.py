"""``vlcli runs`` and ``vlcli follow``: lists runs, removes what can go, and watches a run until it ends."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Exit, Option

from vlcli.cli import console, options
from vlcli.cli.guard import RunRequest, guarded, requested
from vlcli.cli.words import age, main_metrics, number, size, spent
from vlcli.errors import DataError
from vlcli.recipe import leftovers, run_state, stage_record
from vlcli.recipe.locate import slug
from vlcli.stopping import Stopped
from vlcli.tools.table import main_number


@requested("output", "json_")
def runs(
    request: RunRequest,
    clean: Annotated[bool, Option("--clean", help="Remove what can go, after asking.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="With --clean: do not ask.")] = False,
) -> None:
    """Run folders with state, main metric, size and age, and what can go: leftovers of kills, replaced parts.

    vlcli runs
    vlcli runs --clean --yes
    """
    output = request.output
    if not output.is_dir():
        raise DataError("There is no such folder of runs.", where=str(output), hint="make a run: vlcli run quickstart")
    listed = leftovers.look(output)
    rubbish = [item for run in listed for item in run.leftovers]
    gone = _clean(listed, rubbish, yes or request.json_) if clean else []
    if request.json_:
        removed = {str(item.path) for item in gone}
        console.out_json({"output": str(output), "runs": [_row(run, removed) for run in listed]})
        return
    _tell(listed)
    if rubbish and not clean:
        console.out_lines(f"can go: {_shown(item)}" for item in rubbish)
        console.err("remove what can go: vlcli runs --clean")


def _shown(item: leftovers.Leftover) -> str:
    return f"{item.path}  {size(item.size)}  {item.why}"


def _clean(listed: list[leftovers.Run], rubbish: list[leftovers.Leftover], sure: bool) -> list[leftovers.Leftover]:
    # where no run has begun in the folder meanwhile
    if not rubbish:
        console.err("nothing to remove")
        return []
    console.err_lines(map(_shown, rubbish))
    total = size(sum(item.size for item in rubbish))
    if not sure and not typer.confirm(f"Remove these {len(rubbish)}, {total}?", err=True):
        return []
    gone = [item for run in listed if not run_state.is_alive(run.folder) for item in run.leftovers]
    for item in gone:
        leftovers.remove(item.path)
    console.err(f"removed {len(gone)}, {size(sum(item.size for item in gone))}")
    return gone


def _row(run: leftovers.Run, removed: set[str]) -> dict[str, Any]:
    items = [
        {"path": str(item.path), "bytes": item.size, "why": item.why, "removed": str(item.path) in removed}
        for item in run.leftovers
    ]
    row = {"folder": str(run.folder), "state": run.state, "stages": run.stages, "bytes": run.size}
    pid = run.progress.pid if run.progress is not None and run.state == "running" else None
    main = main_number(run.folder)
    metric = None if main is None else dict(zip(("row", "metric", "value"), main, strict=True))
    return {**row, "pid": pid, "main": metric, "age_seconds": round(time.time() - run.changed), "can_go": items}


def _tell(listed: list[leftovers.Run]) -> None:
    rows = []
    for run in listed:
        state = run.state
        if state == "running" and run.progress is not None and run.progress.status == "running":
            state = f"running ({run.progress.pid})"
        done = f"{sum(stage == 'done' for stage in run.stages.values())} of {len(run.stages)}"
        main = main_number(run.folder)
        metric = "" if main is None else f"{main[0]}: {main[1]} {number(main[2])}"
        rubbish = size(sum(item.size for item in run.leftovers)) if run.leftovers else ""
        rows.append([str(run.folder), state, done, metric, size(run.size), age(time.time() - run.changed), rubbish])
    console.table(["run", "state", "stages done", "metric", "size", "age", "can go"], rows)
    if any(run.state == "running" for run in listed):
        console.err("watch a running one: vlcli follow RUN")


_EVERY, _LINE = 0.5, 5.0


@guarded
def follow(
    run: Annotated[str | None, Argument(metavar="[RUN]", help="A run or its folder; else the one that runs.")] = None,
    output: options.Output = Path("runs"),
) -> None:
    """Watch a run from another terminal: its stages, losses and time left, until it ends.

    vlcli follow
    vlcli follow runs/quickstart

    The exit code is that of the run: 0 where it was done, 1 or more where it failed, 130 where it was interrupted.
    Ctrl-C ends the watching; the run goes on.
    """
    folder = _folder(run, output)
    state = run_state.seen(folder)
    try:
        if state is not None and state.status == "running":
            state = _in_view(folder, state) if console.shows_bars() else _in_lines(folder, state)
    except Stopped as stop:
        console.err(f"no longer watching; {folder} goes on")
        raise Exit(stop.code) from None
    raise Exit(_tell_end(folder, state))


def _folder(name: str | None, output: Path) -> Path:
    folders = [path for path in output.iterdir() if path.is_dir()] if output.is_dir() else []
    folders.sort(key=lambda path: path.stat().st_mtime)
    alive = [path for path in folders if run_state.is_alive(path)]
    if name is None and alive:
        return alive[-1]
    if name is not None:
        rows = [path for path in reversed(folders) if path.name.startswith(f"{slug(name)}-")]  # of a table
        rows = [path for path in rows if path in alive] + [path for path in rows if run_state.read(path) is not None]
        for folder in (output / name, Path(name), output / slug(name), *rows):
            if (folder / "recipe.yaml").is_file() or run_state.read(folder) is not None:
                return folder
    hint = f"vlcli follow {alive[-1].name}" if alive else "see all runs: vlcli runs"
    what = "No run is under way." if name is None else "There is no such run."
    got = ", ".join(str(path) for path in alive)
    raise DataError(what, where=name or str(output), got=f"running: {got}" if got else "", hint=hint)


def _in_view(folder: Path, state: run_state.RunState) -> run_state.RunState:
    from rich.console import Console
    from rich.live import Live

    from vlcli.cli.live import View

    view = View(state)
    with Live(view, console=Console(stderr=True, highlight=False), refresh_per_second=2, vertical_overflow="crop"):
        while view.state.status == "running":
            time.sleep(_EVERY)
            view.state = _next(folder, view.state)
    return view.state


def _next(folder: Path, before: run_state.RunState) -> run_state.RunState:
    # a run whose file has gone did all it was asked to
    if (now := run_state.seen(folder)) is not None:
        return now
    if not run_state.is_alive(folder) and not (folder / run_state.FILE).exists():
        before.status = "done"
        for stage in before.stages:
            record = stage_record.read(folder / stage.name)
            if record is not None and not stage.ended:
                stage.status, stage.work = record.status, []
                stage.seconds, stage.metrics = record.seconds, record.metrics
    return before


def _in_lines(folder: Path, state: run_state.RunState) -> run_state.RunState:
    from vlcli.cli import live

    told: dict[str, str] = {}
    spoken = 0.0
    while True:
        late = time.monotonic() - spoken >= _LINE
        for stage in state.stages:
            changed = told.get(stage.name) != stage.status
            told[stage.name] = stage.status
            if stage.status != "waiting" and (changed or (late and stage.status == "running")):
                console.err(f"{stage.name}: {stage.status}  {live.in_a_line(stage, time.time())}".rstrip())
        if state.status != "running":
            return state
        if late:
            console.err(f"{state.recipe}: {live.summary(state, time.time())}")
            spoken = time.monotonic()
        time.sleep(_EVERY)
        state = _next(folder, state)


def _tell_end(folder: Path, state: run_state.RunState | None) -> int:
    if state is None:
        run = leftovers.look_at(folder)
        word, stages = run.state, run.stages
    else:
        word, stages = state.status, {stage.name: stage.status for stage in state.stages}
    rows = []
    for name, status in stages.items():
        record = stage_record.read(folder / name)
        facts = ["", ""] if record is None else [spent(record.seconds), main_metrics(record.metrics)]
        rows.append([name, status, *facts])
    console.table(["stage", "state", "time", "metrics"], rows)
    ended_well = word not in ("failed", "stopped", "running")
    console.err(f"{folder} is {word}" + ("" if ended_well else "; run the same command again to go on"))
    return 0 if ended_well else (state.code if state is not None and state.code else 1)
