"""Draws all stages of a run in one table, as ``vlcli run`` and ``vlcli follow`` show it on a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vlcli.cli.words import clock, fact, facts, main_metrics, roughly
from vlcli.recipe import time_left
from vlcli.recipe.run_state import RunState, StageState, Work

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = {"running": "bold cyan", "done": "green", "failed": "bold red", "blocked": "red", "stopped": "yellow"}
# Lines of the view that are no stages: the headline, the two that stand for folded stages, and the cursor's.
_BESIDE = 4
_BAR, _WIDE, _NARROW = 14, 100, 60
"""Columns of a bar, of a terminal on which bars are shown, and of one that has no room for what can be left out."""


class View:
    """A rich renderable of the state of a run, which changes meanwhile."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def __rich_console__(self, console: Any, options: Any) -> Any:
        from rich.text import Text

        now, width = time.time(), options.max_width
        forms = [f"{self.state.recipe}: {form}" for form in _forms(self.state, now)]
        shown = next((form for form in forms if len(form) <= width), forms[-1])
        yield Text(shown, style="bold", no_wrap=True, overflow="ellipsis")
        yield stages(self.state, now, height=(options.height or console.height) - _BESIDE, width=width)


def summary(state: RunState, now: float) -> str:
    """``about 11 min left, 3 of 14 stages done, 2 side by side, 4:10 so far``."""
    return _forms(state, now)[0]


def _forms(state: RunState, now: float) -> list[str]:
    ended = sum(stage.ended and stage.status not in ("failed", "stopped", "blocked") for stage in state.stages)
    running, every = sum(stage.status == "running" for stage in state.stages), len(state.stages)
    done = f"{ended} of {every} stages done"
    if state.status != "running":
        return [f"{state.status}, {done}, {clock((state.updated or now) - state.began)}"]
    beside = [f"{running} side by side"] if running > 1 else []
    spent = clock(now - state.began)
    seconds, unknown = time_left.of_run(state, now)
    if unknown == sum(not stage.ended for stage in state.stages):
        long = short = "time left unknown" if unknown else "nothing left"
    else:
        long = short = f"{roughly(seconds)} left"
        if unknown:
            long += f" and {unknown} stage{'s' if unknown > 1 else ''} of unknown length"
            short = f"{roughly(seconds)} or more left"
    return [
        ", ".join([long, done, *beside, f"{spent} so far"]),
        ", ".join([short, done, *beside, f"{spent} so far"]),
        ", ".join([short, f"{ended}/{every} done", *beside, spent]),
        f"{short}, {ended}/{every} done",
        short,
    ]


def stages(state: RunState, now: float, height: int, width: int) -> Table:
    """Returns a row per stage; a low terminal folds ended and waiting ones, a narrow one shows states by style."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False, expand=False)
    names = max((len(stage.name) for stage in state.stages), default=0)
    states = max((len(stage.status) for stage in state.stages), default=0)
    bar, narrow = _BAR if width >= _WIDE else 0, width < _NARROW
    before = [min(names, width // 3) if narrow else names, *([] if narrow else [states]), *([bar] if bar else [])]
    for wide in before:
        table.add_column(min_width=wide, max_width=wide if narrow else max(wide, 8), no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=max(20, width - sum(before) - 2 * len(before)))
    for row in _rows(state.stages, now, max(3, height), narrow):
        table.add_row(*(row if bar else [row[0], row[3]] if narrow else [*row[:2], row[3]]))
    return table


def _rows(stages: Sequence[StageState], now: float, most: int, narrow: bool = False) -> list[list[Any]]:
    ended = [stage for stage in stages if stage.ended and stage.status not in ("failed", "stopped")]
    waiting = [stage for stage in stages if not stage.ended and stage.status != "running"]
    running = sum(_lines(stage, narrow) for stage in stages if stage not in ended and stage not in waiting)
    room = max(0, most - running)
    late = min(len(waiting), max(1, room - len(ended)), room)  # waiting stages that are shown
    early = min(len(ended), room - late)  # ended stages that are shown: the last ones
    folded = {stage.name for stage in [*ended[: len(ended) - early], *waiting[late:]]}
    rows = [_row(stage, now, narrow) for stage in stages if stage.name not in folded]
    return [*_more(len(ended) - early, "done"), *rows, *_more(len(waiting) - late, "waiting")]


def _more(count: int, state: str) -> list[list[Any]]:
    return [["", "", "", f"{count} more stage{'s' if count > 1 else ''} {state}"]] if count else []


def _lines(stage: StageState, narrow: bool) -> int:
    more = bool(stage.work) and bool(narrow or stage.work[0].facts or len(stage.work) > 1)
    return 2 if stage.status == "running" and more else 1


def _row(stage: StageState, now: float, narrow: bool) -> list[Any]:
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    style = _STYLES.get(stage.status, "dim")
    name, state = Text(stage.name, style=style if narrow else ""), Text(stage.status, style=style)
    if stage.status == "running":
        bars = [ProgressBar(work.total, work.done, width=_BAR) for work in stage.work[:1] if work.total]
        return [name, state, bars[0] if bars else "", Text("\n".join(_under_way(stage, now, narrow)))]
    known = _known(stage)
    if narrow and stage.status in ("failed", "stopped"):
        known = f"{stage.status}  {known}"
    return [name, state, "", Text(known, style="" if stage.ended else "dim")]


def _under_way(stage: StageState, now: float, narrow: bool = False) -> list[str]:
    # step, time left and speed; what is measured within it, loss and metrics (narrow: step; time left and speed)
    rest = stage.left(now)
    left = [f"{roughly(rest)} left"] if rest is not None else []
    if not stage.work:
        return [", ".join([f"begun {clock(now - stage.began)} ago", *left])]
    outer, inner = stage.work[0], stage.work[-1]
    if narrow:
        return [counted(inner), ", ".join([*left, speed(outer, now)])]
    second = [f"now: {counted(inner)}"] if inner is not outer else []
    second += [facts({name: value for name, value in outer.facts.items() if name != "ex/s"})] if outer.facts else []
    return [", ".join([counted(outer), *left, speed(outer, now)]), *(["  ".join(second)] if second else [])]


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
    return "  ".join(_under_way(stage, now)) if stage.status == "running" else _known(stage)


def _known(stage: StageState) -> str:
    if stage.status == "waiting":
        return ", ".join(filter(None, [stage.why, roughly(stage.expected) if stage.expected is not None else ""]))
    if stage.status in ("blocked", "passed over", "not chosen"):
        return stage.why
    spent = f"{clock(stage.seconds)}  " if stage.seconds else ""
    return f"{spent}{main_metrics(stage.metrics)}"
