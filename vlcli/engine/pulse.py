"""Records what a training process does and since when, to detect one that hangs.

The trainer notes every change of work (:func:`note`); a thread (:func:`watched_alone`, :mod:`vlcli.engine.peers`)
compares the time since the last note with a limit. Time in which the process was stopped (SIGSTOP) does not count.
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

# Most seconds between two looks of the watching thread
EVERY = 2.0
COMPUTES, LOADS, WAITS = "computes", "loads data", "waits for the others"
EVALUATES, WRITES = "evaluates", "writes a checkpoint"
HINT = (
    "run the same command again: it goes on from the last checkpoint; "
    "if this work may take longer, set `hang_timeout: SECONDS` in the recipe, or VLCLI_HANG_TIMEOUT"
)


class Pulse:
    """The work of this process since ``time.monotonic() == since``; outside a training ``doing`` is empty."""

    def __init__(self) -> None:
        self.doing, self.since = "", time.monotonic()
        self._looked = time.monotonic()

    def begin(self) -> None:
        self.note(COMPUTES)
        self._looked = self.since

    def note(self, doing: str) -> None:
        self.doing, self.since = doing, time.monotonic()

    def look(self) -> float:
        """Return seconds since the last note; called by the watching thread every few seconds."""
        now = time.monotonic()
        gap, self._looked = now - self._looked, now
        if gap > 5 * EVERY:  # the whole process stood still
            self.since = min(self.since + gap, now)  # the last note may be younger than the last look
        return now - self.since if self.doing else 0.0


_pulse = Pulse()


def note(doing: str) -> None:
    """Note the work of a training process: it begins, or goes on."""
    if _pulse.doing:
        _pulse.note(doing)


@contextmanager
def during(doing: str) -> Iterator[None]:
    """Note ``doing`` until the block ends, then computing."""
    note(doing)
    try:
        yield
    finally:
        note(COMPUTES)


def look() -> tuple[float, str, str]:
    """Return seconds since the last note, the work, and the :func:`place` of the main thread."""
    idle = _pulse.look()
    return idle, _pulse.doing, place() if idle > 0.5 else ""


@contextmanager
def beating() -> Iterator[None]:
    """Record the work of a training until the block ends."""
    _pulse.begin()
    try:
        yield
    finally:
        _pulse.doing = ""


def place() -> str:
    """Return file, line and function of the main thread's innermost frame in vlcli."""
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
    """Watch a training in one process, and end it after ``limit`` seconds without a note."""
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
