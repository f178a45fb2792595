"""Writes a verb's product to stdout, and progress, warnings and errors to stderr."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from vlcli.cli.words import clock
from vlcli.cli.words import facts as show_facts
from vlcli.progress import Progress, ProgressTask, Silent

if TYPE_CHECKING:
    from vlcli.recipe.run_state import RunState


SCHEMA_VERSION = 1
_EVERY, _EVERY_JSON = 5.0, 0.3
# Texts and names must not move the cursor, recolour or rename a terminal: their control characters are spelt out.
_SPELT = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}


def progress(verbose: int = 0, quiet: bool = False, as_json: bool = False) -> Progress:
    """Returns where this process reports: bars on a terminal, else lines; JSON for a parent; ranks above 0: nowhere."""
    if os.environ.get("RANK", "0") != "0":
        return Silent()
    if as_json:
        return JsonProgress()
    return BarProgress(verbose) if shows_bars() and not quiet else PlainProgress(verbose, quiet)


def shows_bars() -> bool:
    """Returns whether stderr is a terminal that can draw a line again."""
    return is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"


def is_terminal(stream: TextIO | None) -> bool:
    """Returns whether a standard stream is a terminal; Python has None for one that is closed."""
    return stream is not None and stream.isatty()


def out(text: str) -> None:
    """Writes a line to stdout, control characters spelt out."""
    text = text.translate(_SPELT)
    if os.environ.get("RANK", "0") == "0" and sys.stdout is not None:
        try:
            sys.stdout.write(text + "\n")
        except UnicodeEncodeError:  # half of a surrogate pair, or a terminal of another encoding
            encoding = sys.stdout.encoding or "utf-8"
            sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def out_lines(lines: Iterable[str]) -> None:
    """Writes lines to stdout."""
    for line in lines:
        out(line)


def flush() -> None:
    """Flushes stdout, for a reader that waits while this process goes on."""
    if sys.stdout is not None:
        sys.stdout.flush()


def err(text: str) -> None:
    """Writes a line to stderr, control characters spelt out; a terminal that is gone is no reason to fail."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text.translate(_SPELT) + "\n")
        sys.stderr.flush()
    except OSError as error:
        if error.errno != errno.EIO:
            raise


def err_lines(lines: Iterable[str]) -> None:
    """Writes lines to stderr."""
    for line in lines:
        err(line)


def out_json(value: dict[str, Any]) -> None:
    """Writes one JSON document to stdout."""
    out(json.dumps({"schema_version": SCHEMA_VERSION, **value}, indent=2, default=str))


def answer(as_json: bool, document: dict[str, Any], text: str) -> None:
    """Writes the document with ``--json``, else the text."""
    out_json(document) if as_json else out(text)


def table(columns: list[str], rows: list[list[str]], title: str = "") -> None:
    """Writes a table to stdout: boxed on a terminal, aligned plain text otherwise."""
    if is_terminal(sys.stdout):
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        look: dict[str, Any] = {"box": SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "padding": (0, 1, 0, 0)}
        boxed = Table(title=title or None, title_justify="left", **look)
        for index, column in enumerate(columns):
            boxed.add_column(column, overflow="fold", no_wrap=index == 0 and len(columns) > 1)
        for row in rows:
            boxed.add_row(*[Text(str(cell).translate(_SPELT)) for cell in row])
        Console().print(boxed)
        return
    widths = [max(len(str(row[i])) for row in [columns, *rows]) for i in range(len(columns))]
    if title:
        out(title)
    for row in [columns, *rows]:
        out("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def counts(rows: list[dict[str, Any]], titles: Mapping[str, str], title: str = "") -> None:
    """Writes rows with equal keys as a table; ``titles`` head columns; thousands are separated, 0 is ``-``."""
    columns = list(rows[0])
    cells = [[row[c] if isinstance(row[c], str) else f"{row[c]:,}" if row[c] else "-" for c in columns] for row in rows]
    table([titles.get(column, column) for column in columns], cells, title)


class _Step:
    """Counts the units of one long step, and shows them at most every ``every`` seconds."""

    def __init__(self, show: Callable[[_Step], None], every: float, done: int = 0) -> None:
        self.show, self.every = show, every
        self.start, self.done, self.shown = done, done, -1
        self.facts: dict[str, float | str] = {}
        self.began = self.shown_at = time.monotonic()

    @property
    def rate(self) -> float:
        return (self.done - self.start) / max(time.monotonic() - self.began, 1e-9)

    def advance(self, count: int = 1, **facts: float | str) -> None:
        self.done += count
        self.facts = facts or self.facts
        if time.monotonic() - self.shown_at >= self.every:
            self.tell()

    def tell(self) -> None:
        self.show(self)
        self.shown, self.shown_at = self.done, time.monotonic()


class PlainProgress:
    """Reports plain lines on stderr."""

    def __init__(self, verbose: int = 0, quiet: bool = False) -> None:
        self.verbose, self.quiet = verbose, quiet

    def info(self, message: str) -> None:
        if not self.quiet:
            err(message)

    def warn(self, message: str) -> None:
        err(f"warning: {message}")

    def debug(self, message: str) -> None:
        if self.verbose:
            err(message)

    @contextmanager
    def task(self, label: str, total: int | None, unit: str = "it", done: int = 0) -> Iterator[ProgressTask]:
        def show(step: _Step) -> None:
            rate, share, left = step.rate, str(step.done), ""
            if total is not None:
                share = f"{step.done}/{total}"
                left = f", {clock((total - step.done) / rate)} left" if rate > 0 and step.done < total else ""
            self.info(f"{label}: {share} {unit}, {rate:.1f} {unit}/s{left}  {show_facts(step.facts)}".rstrip())

        step = _Step(show, _EVERY, done)
        yield step
        if step.done != step.shown:
            step.tell()


class JsonProgress:
    """Reports one JSON object a line, for the parent process that runs several stages at a time."""

    def info(self, message: str) -> None:
        self.send(event="info", text=message)

    def warn(self, message: str) -> None:
        self.send(event="warn", text=message)

    def debug(self, message: str) -> None:
        self.send(event="debug", text=message)

    @contextmanager
    def task(self, label: str, total: int | None, unit: str = "it", done: int = 0) -> Iterator[ProgressTask]:
        def show(step: _Step) -> None:
            if count := step.done - max(step.shown, step.start):
                self.send(event="advance", label=label, count=count, facts=step.facts)

        self.send(event="task", label=label, total=total, unit=unit, done=done)
        step = _Step(show, _EVERY_JSON, done)
        yield step
        step.tell()
        self.send(event="end", label=label)

    def send(self, **event: Any) -> None:
        err(json.dumps(event, default=str))


# How often the view of a run is drawn anew: seldom enough to cost the training nothing that can be measured.
_A_SECOND = 3


class BarProgress:
    """Bars on a terminal; all stages of a run in one view (``vlcli.runner.watch.ShowsRuns``)."""

    def __init__(self, verbose: int = 0) -> None:
        from rich.console import Console

        self.verbose, self.console = verbose, Console(stderr=True, highlight=False)
        self.bars: Any = None
        self.open = 0
        self.shows_run = False

    def info(self, message: str) -> None:
        self.console.print(message.translate(_SPELT), markup=False)

    def warn(self, message: str) -> None:
        self.console.print(f"warning: {message.translate(_SPELT)}", style="yellow", markup=False)

    def debug(self, message: str) -> None:
        if self.verbose:
            self.console.print(message.translate(_SPELT), style="dim", markup=False)

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
        number = self.bars.add_task(label, total=total, completed=done, facts="", rate="")

        def show(step: _Step) -> None:
            rate, facts = f"{step.rate:.1f} {unit}/s", show_facts(step.facts)
            self.bars.update(number, completed=step.done, rate=rate, facts=facts)

        try:
            yield _Step(show, 0.0, done)
        finally:
            self.open -= 1
            if self.open == 0:
                self.bars.stop()

    @contextmanager
    def run_shown(self, state: RunState) -> Iterator[None]:
        # of a finished run the table of its results is left; the view of one that fails or is stopped stays
        from rich.live import Live

        from vlcli.cli.live import View

        self.shows_run = True
        with Live(View(state), console=self.console, refresh_per_second=_A_SECOND, vertical_overflow="crop") as live:
            try:
                yield
            finally:
                live.transient = state.status == "done"
                self.shows_run = False


def _bars(console: Any) -> Any:
    from rich import progress as bars

    return bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=24),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.fields[rate]}"),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[facts]}", style="dim"),
        console=console,
    )
