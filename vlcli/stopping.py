"""Handles signals that ask this process to end, at a moment when no work is lost.

SIGTERM, SIGINT, SIGHUP and SIGUSR1 raise :class:`Stopped` in the main thread: at once, or at the end of a section of
:func:`held`. A second signal, at least half a second after the first, ends the process immediately (30 s with several
processes: a launcher passes on a signal that the scheduler has sent already). Signals that the parent process ignores
stay ignored. All this holds inside :func:`listening` alone, which the command line enters.
"""

import atexit
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from vlcli.errors import UsageError

AGAIN, AGAIN_TOGETHER = 0.5, 30.0
"""Signals within so many seconds count as one: a terminal and a parent, or a scheduler and a launcher, send both."""
WORDS = {
    "SIGINT": "interrupted",
    "SIGTERM": "terminated",
    "SIGHUP": "ended, for its terminal is gone",
    "SIGUSR1": "asked to end by the scheduler (SIGUSR1)",
}
SIGNALS = tuple(number for name in WORDS if (number := getattr(signal, name, None)))
# Seconds that one of several processes may wait for the others, outside :func:`held`, before a signal ends it.
_DEAF = 5.0
REQUEUE = "VLCLI_REQUEUE_CODE"
"""Environment variable of the exit code after SIGTERM and SIGUSR1, for a scheduler that requeues on a code."""

LAUNCHER = "VLCLI_LAUNCHER"
"""Environment variable of the process that started this one with others (``--processes``): its number."""


def requeue_code() -> int | None:
    """Returns the exit code of :data:`REQUEUE`, or None. Raises UsageError: it is no exit code."""
    code = os.environ.get(REQUEUE, "")
    if code and not (code.isascii() and code.isdigit() and 1 <= int(code) <= 255):
        raise UsageError(f"{REQUEUE} is no exit code.", where="environment", got=code, expected="1 to 255")
    return int(code) if code else None


class Stopped(BaseException):
    """The signal ``number`` asks this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def code(self) -> int:
        if signal.Signals(self.number).name in ("SIGTERM", "SIGUSR1"):
            with suppress(UsageError):
                return requeue_code() or 128 + self.number
        return 128 + self.number

    def __str__(self) -> str:
        return WORDS.get(signal.Signals(self.number).name, "ended")


@dataclass
class _State:
    listening: bool = False
    asked: int = 0  # the signal that came
    raised: bool = False  # Stopped was raised: the clean-up after it is not interrupted again
    held: int = 0  # sections open
    ends: bool = False  # the process exits when the section of listening() ends


_state = _State()


@contextmanager
def listening() -> Iterator[None]:
    """Raises :class:`Stopped` for signals; nested calls and calls outside the main thread have no effect."""
    if _state.listening or threading.current_thread() is not threading.main_thread():
        yield
        return
    caught = [number for number in SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, _take) for number in caught}
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # Python runs no handler while the main thread waits inside a library: the second signal must not wait for that.
    woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    _state.listening, _state.asked, _state.raised, _state.held = True, 0, False, 0
    threading.Thread(target=_watch, args=(reading, frozenset(caught)), daemon=True).start()
    try:
        yield
    finally:
        _state.listening = False
        signal.set_wakeup_fd(woken)
        os.close(writing)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if _state.ends and _state.asked else handler)


def end_with(command: Callable[[], object]) -> None:
    """Runs ``command`` as the only work of this process, which then exits at once.

    The normal exit of the interpreter takes seconds with torch, and a late signal would change the exit code.
    """
    _state.ends = True
    try:
        command()
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        if not _state.asked:
            atexit._run_exitfuncs()
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(end.code)


def _take(number: int, _: object) -> None:
    if _state.asked:
        return
    _state.asked = number
    if number == getattr(signal, "SIGHUP", None):
        _leave_terminal()
    _raise_if_asked()


def _watch(reading: int, caught: frozenset[int]) -> None:
    first, number, together = 0.0, 0, int(os.environ.get("WORLD_SIZE", "1")) > 1
    while True:
        ready = select.select([reading], [], [], 1.0)[0]
        waits = first and together and _state.listening and not _state.raised and not _state.held
        if waits and time.monotonic() - first > _DEAF:
            _end_now(number, "ended while it waited inside a library: run the same command again to go on\n")
        if not ready:
            continue
        byte = os.read(reading, 1)
        if not byte:
            break
        if byte[0] not in caught:
            continue
        again = AGAIN_TOGETHER if together and byte[0] != signal.SIGINT else AGAIN
        if first and time.monotonic() - first >= again:
            _end_now(byte[0], "ended at once, by a second signal: run the same command again to go on\n")
        first, number = first or time.monotonic(), number or byte[0]
    os.close(reading)


def _end_now(number: int, words: str) -> None:
    with suppress(OSError):
        if os.isatty(2):
            os.write(2, b"\x1b[?25h")  # a live view hides the cursor
        os.write(2, words.encode())
    os._exit(Stopped(number).code)


def _leave_terminal() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        with suppress(OSError):
            if not os.isatty(stream):
                os.write(stream, b"")  # fails where the terminal is gone
                continue
        with suppress(OSError):
            os.dup2(nowhere, stream)
    os.close(nowhere)


def asked() -> int:
    """Returns the number of the signal that came; 0 for none."""
    return _state.asked if _state.listening else 0


@contextmanager
def held() -> Iterator[None]:
    """Defers signals to the end of the outermost such section. Raises Stopped: on leaving, if a signal came."""
    if not _acts():
        yield
        return
    _state.held += 1
    try:
        yield
    finally:
        _state.held -= 1
    _raise_if_asked()


@contextmanager
def opened() -> Iterator[None]:
    """Lets signals interrupt a part of a section of :func:`held`; Stopped: a signal came before or comes now."""
    if not _acts():
        yield
        return
    outer, _state.held = _state.held, 0
    try:
        _raise_if_asked()
        yield
    finally:
        _state.held = outer


def _acts() -> bool:
    return _state.listening and threading.current_thread() is threading.main_thread()


def _raise_if_asked() -> None:
    if _state.asked and not _state.held and not _state.raised:
        _state.raised = True
        raise Stopped(_state.asked)


def conclude(stop: Stopped) -> None:
    """Prepares to end because of ``stop``, a signal to this process or to another one that all processes agreed on."""
    _state.asked = _state.asked or stop.number
    end_children()


def end_children() -> None:
    """Kills the data loader processes, which have no state to save and may take long to end."""
    for child in multiprocessing.active_children():
        child.kill()


def shelter(_: int = 0) -> None:
    """Ignores signals in a worker of a data loader (``worker_init_fn``): the parent still needs batches.

    The worker ends with its parent; torch looks for the parent between batches alone.
    """
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    end_with_parent()


def end_with_parent(every: float = 0.5) -> None:
    """Ends this worker process soon after its parent is gone."""
    parent, starter = os.getppid(), multiprocessing.parent_process()  # of a fork server, the first is the server

    def watch() -> None:
        while os.getppid() == parent and (starter is None or starter.is_alive()):
            time.sleep(every)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _in_child() -> None:
    if not _state.listening:
        return
    _state.listening = False
    with suppress(ValueError):
        signal.set_wakeup_fd(-1)
        for number in SIGNALS:
            if signal.getsignal(number) is _take:
                signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_in_child)
