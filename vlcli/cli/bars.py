"""Draws progress on a terminal: a bar for each long step, and one view of all stages of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vlcli.cli.words import facts as show_facts
from vlcli.progress import ProgressTask, Silent

if TYPE_CHECKING:
    from vlcli.recipe.run_state import RunState

_A_SECOND = 3
"""How often the view of a run is drawn anew: seldom enough to cost the training nothing that can be measured."""


class BarProgress:
    """Bars on a terminal; all stages of a run in one view (``vlcli.runner.watch.ShowsRuns``)."""

    def __init__(self, verbose: int = 0) -> None:
        from rich.console import Console

        self.verbose, self.console = verbose, Console(stderr=True, highlight=False)
        self.bars: Any = None
        self.open = 0
        self.shows_run = False

    def info(self, message: str) -> None:
        self.console.print(message, markup=False)

    def warn(self, message: str) -> None:
        self.console.print(f"warning: {message}", style="yellow", markup=False)

    def debug(self, message: str) -> None:
        if self.verbose:
            self.console.print(message, style="dim", markup=False)

    @contextmanager
    def task(self, label: str, total: int | None, unit: str = "it", done: int = 0) -> Iterator[ProgressTask]:
        if self.shows_run:  # the view of a run shows its steps itself
            with Silent().task(label, total, unit, done) as silent:
                yield silent
            return
        if self.open == 0:
            self.bars = _bars(self.console)
            self.bars.start()
        self.open += 1
        number = self.bars.add_task(label, total=total, completed=done, unit=unit, facts="", rate="")
        try:
            yield _BarTask(self.bars, number, done, unit)
        finally:
            self.open -= 1
            if self.open == 0:
                self.bars.stop()

    @contextmanager
    def run_shown(self, state: RunState) -> Iterator[None]:
        # of a finished run the table of its results is left; the view of one that fails or is stopped stays
        from rich.live import Live

        from vlcli.cli.live import View

        live = Live(View(state), console=self.console, refresh_per_second=_A_SECOND, vertical_overflow="crop")
        self.shows_run = True
        try:
            with live:
                try:
                    yield
                finally:
                    live.transient = state.status == "done"
        finally:
            self.shows_run = False


class _BarTask:
    def __init__(self, bars: Any, number: Any, done: int, unit: str) -> None:
        self.bars, self.number, self.unit = bars, number, unit
        self.count, self.began = 0, time.monotonic()

    def advance(self, count: int = 1, **facts: float | str) -> None:
        self.count += count
        changes: dict[str, Any] = {"facts": show_facts(facts)} if facts else {}
        rate = self.count / max(time.monotonic() - self.began, 1e-9)
        self.bars.update(self.number, advance=count, rate=f"{rate:.1f} {self.unit}/s", **changes)


def _bars(console: Any) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = [
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[facts]}", style="dim"),
    ]
    return Bars(*columns, console=console, transient=False)
