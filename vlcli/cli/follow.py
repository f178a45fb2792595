"""``vlcli follow``: watches from another terminal how far a run is, until the run ends."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded

if TYPE_CHECKING:
    from vlcli.recipe.run_state import RunState, StageState

_EVERY, _LINE = 0.5, 5.0


@guarded
def follow(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Name or folder of a run; without it, the one that runs.")
    ] = None,
    output: o.Output = Path("runs"),
    verbose: o.Verbose = 0,
) -> None:
    """Watch a run from another terminal: its stages, losses and time left, until it ends.

    vlcli follow

    vlcli follow runs/quickstart

    The exit code is that of the run: 0 where it was done, 1 or more where it failed, 130 where it was interrupted.
    Ctrl-C ends the watching; the run goes on.
    """
    from vlcli.cli import console
    from vlcli.recipe import run_state
    from vlcli.stopping import Stopped

    folder = _folder(run, output)
    state = run_state.seen(folder)
    try:
        last = _until_end(folder, state) if state is not None and state.status == "running" else state
    except Stopped as stop:
        console.err(f"no longer watching; {folder} goes on")
        raise typer.Exit(stop.code) from None
    raise typer.Exit(_tell_end(folder, last))


def _folder(name: str | None, output: Path) -> Path:
    """The run folder that is meant.

    Raises:
        DataError: there is none; the message names those that run.
    """
    from vlcli.errors import DataError
    from vlcli.recipe import run_state
    from vlcli.recipe.locate import slug

    found = sorted(output.iterdir(), key=lambda path: path.stat().st_mtime) if output.is_dir() else []
    alive = [path for path in found if path.is_dir() and run_state.is_alive(path)]
    if name is None and alive:
        return alive[-1]
    if name is not None:
        rows = [path for path in reversed(found) if path.name.startswith(f"{slug(name)}-")]  # of a table
        rows = [path for path in rows if path in alive] + [path for path in rows if run_state.read(path) is not None]
        for folder in (output / name, Path(name), output / slug(name), *rows):
            if (folder / "recipe.yaml").is_file() or run_state.read(folder) is not None:
                return folder
    hint = f"vlcli follow {alive[-1].name}" if alive else "see all runs: vlcli runs"
    what = "There is no such run." if name is not None else "No run is under way."
    got = ", ".join(str(path) for path in alive)
    raise DataError(what, where=name or str(output), got=f"running: {got}" if got else "", hint=hint)


def _until_end(folder: Path, state: RunState) -> RunState:
    """Show the run until it ends; returns how it ended."""
    from vlcli.cli.console import shows_bars

    if not shows_bars():
        return _in_lines(folder, state)
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
    """The state as it is now; a run whose file has gone did all it was asked to."""
    from vlcli.recipe import run_state

    now = run_state.seen(folder)
    if now is not None:
        return now
    if not run_state.is_alive(folder) and not (folder / run_state.FILE).exists():
        before.status = "done"
        for stage in before.stages:
            _from_record(folder, stage)
    return before


def _from_record(folder: Path, stage: StageState) -> None:
    """How a stage ended, from its record."""
    from vlcli.recipe import stage_record

    record = stage_record.read(folder / stage.name)
    if record is not None and not stage.ended:
        stage.status, stage.work = record.status, []
        stage.seconds, stage.metrics = record.seconds, record.metrics


def _in_lines(folder: Path, state: RunState) -> RunState:
    """The same as plain lines on stderr: a line when a stage begins or ends, and one every few seconds."""
    from vlcli.cli import console

    told: dict[str, str] = {}
    spoken = 0.0
    while True:
        late = time.monotonic() - spoken >= _LINE
        for stage in state.stages:
            if told.get(stage.name) != stage.status:
                told[stage.name] = stage.status
                _line(stage)
            elif late and stage.status == "running":
                _line(stage)
        if late:
            spoken = time.monotonic()
        if state.status != "running":
            return state
        console.err(_summary(state)) if late else None
        time.sleep(_EVERY)
        state = _next(folder, state)


def _summary(state: RunState) -> str:
    from vlcli.cli.live import summary

    return f"{state.recipe}: {summary(state, time.time())}"


def _line(stage: StageState) -> None:
    from vlcli.cli import console, live

    if stage.status != "waiting":
        console.err(f"{stage.name}: {stage.status}  {live.in_a_line(stage, time.time())}".rstrip())


def _tell_end(folder: Path, state: RunState | None) -> int:
    """The table of its stages on stdout and how it ended on stderr; returns the exit code."""
    from vlcli.cli import console, render
    from vlcli.cli.scores import main_metrics
    from vlcli.recipe import leftovers, stage_record

    word, rows = state.status if state is not None else "", []
    stages = {stage.name: stage.status for stage in state.stages} if state is not None else {}
    if state is None:
        run = leftovers.look_at(folder)
        word, stages = run.state, run.stages
    for name, status in stages.items():
        record = stage_record.read(folder / name)
        spent = render.seconds(record.seconds) if record is not None else ""
        rows.append([name, status, spent, main_metrics(record.metrics) if record is not None else ""])
    console.table(["stage", "state", "time", "metrics"], rows)
    ended_well = word not in ("failed", "stopped", "running")
    console.err(f"{folder} is {word}" + ("" if ended_well else "; run the same command again to go on"))
    return 0 if ended_well else (state.code if state is not None and state.code else 1)
