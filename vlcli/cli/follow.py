"""``vlcli follow``: watches a run from another terminal until the run ends."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vlcli.cli import console
from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.cli.words import main_metrics, spent
from vlcli.errors import DataError
from vlcli.stopping import Stopped

if TYPE_CHECKING:
    from vlcli.recipe.run_state import RunState

_EVERY, _LINE = 0.5, 5.0


@guarded
def follow(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Name or folder of a run; without it, the one that runs.")
    ] = None,
    output: o.Output = Path("runs"),
) -> None:
    """Watch a run from another terminal: its stages, losses and time left, until it ends.

    vlcli follow

    vlcli follow runs/quickstart

    The exit code is that of the run: 0 where it was done, 1 or more where it failed, 130 where it was interrupted.
    Ctrl-C ends the watching; the run goes on.
    """
    from vlcli.recipe import run_state

    folder = _folder(run, output)
    state = run_state.seen(folder)
    try:
        if state is not None and state.status == "running":
            state = _in_view(folder, state) if console.shows_bars() else _in_lines(folder, state)
    except Stopped as stop:
        console.err(f"no longer watching; {folder} goes on")
        raise typer.Exit(stop.code) from None
    raise typer.Exit(_tell_end(folder, state))


def _folder(name: str | None, output: Path) -> Path:
    from vlcli.recipe import run_state
    from vlcli.recipe.locate import slug

    folders = sorted(output.iterdir(), key=lambda path: path.stat().st_mtime) if output.is_dir() else []
    alive = [path for path in folders if path.is_dir() and run_state.is_alive(path)]
    if name is None and alive:
        return alive[-1]
    if name is not None:
        rows = [path for path in reversed(folders) if path.name.startswith(f"{slug(name)}-")]  # of a table
        rows = [path for path in rows if path in alive] + [path for path in rows if run_state.read(path) is not None]
        for folder in (output / name, Path(name), output / slug(name), *rows):
            if (folder / "recipe.yaml").is_file() or run_state.read(folder) is not None:
                return folder
    hint = f"vlcli follow {alive[-1].name}" if alive else "see all runs: vlcli runs"
    what = "There is no such run." if name is not None else "No run is under way."
    got = ", ".join(str(path) for path in alive)
    raise DataError(what, where=name or str(output), got=f"running: {got}" if got else "", hint=hint)


def _in_view(folder: Path, state: RunState) -> RunState:
    from rich.console import Console
    from rich.live import Live

    from vlcli.cli.live import View

    view = View(state)
    with Live(view, console=Console(stderr=True, highlight=False), refresh_per_second=2, vertical_overflow="crop"):
        while view.state.status == "running":
            time.sleep(_EVERY)
            view.state = _next(folder, view.state)
    return view.state


def _next(folder: Path, before: RunState) -> RunState:
    # a run whose file has gone did all it was asked to
    from vlcli.recipe import run_state, stage_record

    now = run_state.seen(folder)
    if now is not None:
        return now
    if not run_state.is_alive(folder) and not (folder / run_state.FILE).exists():
        before.status = "done"
        for stage in before.stages:
            record = stage_record.read(folder / stage.name)
            if record is not None and not stage.ended:
                stage.status, stage.work = record.status, []
                stage.seconds, stage.metrics = record.seconds, record.metrics
    return before


def _in_lines(folder: Path, state: RunState) -> RunState:
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
        if late:
            spoken = time.monotonic()
        if state.status != "running":
            return state
        if late:
            console.err(f"{state.recipe}: {live.summary(state, time.time())}")
        time.sleep(_EVERY)
        state = _next(folder, state)


def _tell_end(folder: Path, state: RunState | None) -> int:
    from vlcli.recipe import leftovers, stage_record

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
