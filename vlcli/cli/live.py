"""All stages of a run at one glance: the table that ``vlcli run`` and ``vlcli follow`` show on a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vlcli.cli.scores import main_metrics
from vlcli.cli.words import clock, fact, facts, roughly
from vlcli.recipe import time_left
from vlcli.recipe.run_state import RunState, StageState, Work

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_STYLES = {"running": "bold cyan", "done": "green", "failed": "bold red", "blocked": "red", "stopped": "yellow"}
_BESIDE = 4
"""Lines of the view that are no stages: the headline, the two that stand for folded stages, and the cursor's."""
_BAR, _WIDE = 14, 100
"""Columns of a bar, and of a terminal on which bars are shown."""


class View:
    """A rich renderable of a state that changes meanwhile.

    Args:
        state: of the run.
    """

    def __init__(self, state: RunState) -> None:
        self.state = state

    def __rich_console__(self, console: Any, options: Any) -> Any:
        """Called by rich, some times a second."""
        now = time.time()
        yield headline(self.state, now)
        yield stages(self.state, now, height=(options.height or console.height) - _BESIDE, width=options.max_width)


def headline(state: RunState, now: float) -> Text:
    """``quickstart: about 11 min left, 3 of 14 stages done, 2 side by side, 4:10 so far``, cut to one line."""
    from rich.text import Text

    return Text(f"{state.recipe}: {summary(state, now)}", style="bold", no_wrap=True, overflow="ellipsis")


def summary(state: RunState, now: float) -> str:
    """How far the run is, in one line."""
    ended = sum(stage.ended and stage.status not in ("failed", "stopped", "blocked") for stage in state.stages)
    running = sum(stage.status == "running" for stage in state.stages)
    spent = clock((now if state.status == "running" else state.updated or now) - state.began)
    parts = [left(state, now) if state.status == "running" else state.status]
    parts += [f"{ended} of {len(state.stages)} stages done"]
    parts += [f"{running} side by side"] if running > 1 else []
    return ", ".join([*parts, f"{spent} so far" if state.status == "running" else spent])


def left(state: RunState, now: float) -> str:
    """Time left of the whole run, in words that say how much is known."""
    seconds, unknown = time_left.of_run(state, now)
    waiting = sum(not stage.ended for stage in state.stages)
    if unknown == waiting:
        return "time left unknown" if unknown else "nothing left"
    more = f" and {unknown} stage{'s' if unknown > 1 else ''} of unknown length" if unknown else ""
    return f"{roughly(seconds)} left{more}"


def stages(state: RunState, now: float, height: int, width: int) -> Table:
    """One row per stage; where the terminal is too low, ended and waiting stages are folded into one row each."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False, expand=False)
    names = max((len(stage.name) for stage in state.stages), default=0)
    states = max((len(stage.status) for stage in state.stages), default=0)
    bar = _BAR if width >= _WIDE else 0
    for wide in (names, states, *([bar] if bar else [])):
        table.add_column(min_width=wide, max_width=max(wide, 8), no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(20, width - names - states - bar - 8))
    for row in _rows(state.stages, now, max(3, height)):
        table.add_row(*(row if bar else [*row[:2], row[3]]))
    return table


def _rows(given: Sequence[StageState], now: float, most: int) -> list[list[Any]]:
    ended = [stage for stage in given if stage.ended and stage.status not in ("failed", "stopped")]
    waiting = [stage for stage in given if not stage.ended and stage.status != "running"]
    running = sum(_lines(stage) for stage in given if stage not in ended and stage not in waiting)
    room = max(0, most - running)
    late = min(len(waiting), max(1, room - len(ended)), room)  # waiting stages that are shown
    early = min(len(ended), room - late)  # ended stages that are shown: the last ones
    folded = {stage.name for stage in [*ended[: len(ended) - early], *waiting[late:]]}
    rows = [_row(stage, now) for stage in given if stage.name not in folded]
    if len(ended) > early:
        rows.insert(0, ["", "", "", _more(len(ended) - early, "done")])
    if len(waiting) > late:
        rows.append(["", "", "", _more(len(waiting) - late, "waiting")])
    return rows


def _more(count: int, state: str) -> str:
    return f"{count} more stage{'s' if count > 1 else ''} {state}"


def _lines(stage: StageState) -> int:
    return 2 if stage.status == "running" and stage.work and (stage.work[0].facts or len(stage.work) > 1) else 1


def _row(stage: StageState, now: float) -> list[Any]:
    from rich.text import Text

    state = Text(stage.status, style=_STYLES.get(stage.status, "dim"))
    if stage.status == "running":
        return [Text(stage.name), state, _bar(stage), Text("\n".join(_under_way(stage, now)))]
    return [Text(stage.name), state, "", Text(_told(stage), style="" if stage.ended else "dim")]


def _bar(stage: StageState) -> Any:
    from rich.progress_bar import ProgressBar

    work = stage.work[0] if stage.work else None
    if work is None or not work.total:
        return ""
    return ProgressBar(total=float(work.total), completed=float(work.done), width=_BAR)


def _under_way(stage: StageState, now: float) -> list[str]:
    """Two lines of a stage that runs: step, speed and time left; what is measured within it, loss and metrics."""
    rest = stage.left(now)
    told = [f"{roughly(rest)} left"] if rest is not None else []
    if not stage.work:
        return [", ".join([f"begun {clock(now - stage.began)} ago", *told])]
    outer, inner = stage.work[0], stage.work[-1]
    second = [f"now: {counted(inner)}"] if inner is not outer else []
    second += [facts({name: value for name, value in outer.facts.items() if name != "ex/s"})] if outer.facts else []
    return [", ".join([counted(outer), speed(outer, now), *told]), *(["  ".join(second)] if second else [])]


def counted(work: Work) -> str:
    """``train 130/250 step``."""
    total = f"/{work.total}" if work.total is not None else ""
    return f"{work.label} {work.done}{total} {work.unit}"


def speed(work: Work, now: float) -> str:
    """Examples per second where the stage measures them, else its units per second."""
    if "ex/s" in work.facts:
        return fact("", work.facts["ex/s"]).strip() + " ex/s"
    rate = work.rate(now)
    return f"{rate:.0f} {work.unit}/s" if rate >= 10 else f"{rate:.1f} {work.unit}/s"


def in_a_line(stage: StageState, now: float) -> str:
    """What is known of a stage, in one line."""
    return "  ".join(_under_way(stage, now)) if stage.status == "running" else _told(stage)


def _told(stage: StageState) -> str:
    """What is known of a stage that does not run: time and metrics, or why it waits and how long it will take."""
    if stage.status == "waiting":
        return stage.why + (f", {roughly(stage.expected)}" if stage.expected is not None else "")
    if stage.status in ("blocked", "passed over", "not chosen"):
        return stage.why
    spent = f"{clock(stage.seconds)}  " if stage.seconds else ""
    return f"{spent}{main_metrics(stage.metrics)}"
