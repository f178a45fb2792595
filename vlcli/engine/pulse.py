"""Records what a training process does and since when, to detect one that hangs.

The trainer notes every change of work (:func:`note`); a thread of the process (:func:`watched_alone`), or of the
processes that train together (:mod:`vlcli.engine.peers`), compares the time since the last note with a limit. Time in
which the whole process was stopped (SIGSTOP, a suspended job) does not count.
"""

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vlcli.errors import VlcliError

EVERY = 2.0
"""Most seconds between two looks of the watching thread."""
COMPUTES, LOADS, WAITS = "computes", "loads data", "waits for the others"
EVALUATES, WRITES = "evaluates", "writes a checkpoint"
HINT = (
    "run the same command again: it goes on from the last checkpoint; "
    "if this work may take longer, set `hang_timeout: SECONDS` in the recipe, or VLCLI_HANG_TIMEOUT"
)


class Pulse:
    """The work of this process.

    Attributes:
        doing: the work; empty outside a training, where nothing is watched.
        since: when it began, by the monotonic clock.
    """

    def __init__(self) -> None:
        self.doing, self.since = "", time.monotonic()
        self._looked = time.monotonic()

    def begin(self) -> None:
        """Begin a training."""
        self.note(COMPUTES)
        self._looked = self.since

    def note(self, doing: str) -> None:
        """Begin, or go on with, ``doing``."""
        self.doing, self.since = doing, time.monotonic()

    def look(self) -> float:
        """Return seconds since the last note; a watching thread calls this every few seconds.

        A look that comes late means that the whole process stood still: that time is taken off.
        """
        now = time.monotonic()
        gap, self._looked = now - self._looked, now
        if gap > 5 * EVERY:
            self.since = min(self.since + gap, now)  # the last note may be younger than the last look
        return now - self.since if self.doing else 0.0


_pulse = Pulse()


def note(doing: str) -> None:
    """Begin, or go on with, ``doing`` if the process is training."""
    if _pulse.doing:
        _pulse.note(doing)


@contextmanager
def during(doing: str) -> Iterator[None]:
    """Note other work than computing until the block ends."""
    note(doing)
    try:
        yield
    finally:
        note(COMPUTES)


def look() -> tuple[float, str, str]:
    """Return seconds since the last note, the work, and the line of code where the main thread is."""
    idle = _pulse.look()
    return idle, _pulse.doing, place() if idle > 0.5 else ""


@contextmanager
def beating() -> Iterator[None]:
    """Watch the process until the block ends: if it notes nothing for too long, it counts as hung."""
    _pulse.begin()
    try:
        yield
    finally:
        _pulse.doing = ""


def place() -> str:
    """Return file, line and function of the main thread, of the innermost frame in this project's code."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    innermost, inside = frame, None
    while frame is not None and inside is None:
        parts = Path(frame.f_code.co_filename).parts
        inside = frame if any(part.startswith("vlcli") for part in parts) else None
        frame = frame.f_back
    frame = inside or innermost
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"


@contextmanager
def watched_alone(limit: float) -> Iterator[None]:
    """Watch a training in one process, and end it with one message after ``limit`` seconds without a note."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(min(EVERY, limit / 4)):
            idle, doing, where = look()
            if idle > limit:
                _end(f"it {doing} for {idle:.0f} s", where, limit)

    with beating():
        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            over.set()


def _end(got: str, where: str, limit: float) -> None:
    error = VlcliError("The training hangs.", where=where, got=got, expected=f"progress within {limit:g} s", hint=HINT)
    with suppress(OSError):
        sys.stderr.write(f"error: {error}\n")
        sys.stderr.flush()
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(VlcliError.exit_code)
