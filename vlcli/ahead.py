"""Prefetches batches in a thread while the model trains on the current one.

A worker of a DataLoader that is killed while it writes a batch leaves half of it in the pipe, and its reader waits for
ever. The main thread sees that the process is gone.
"""

import atexit
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakSet

from vlcli.errors import VlcliError

THREAD = "vlcli-batches"
"""Name of the thread that makes batches."""
PATIENCE = 2.0
"""Seconds that ``close`` waits for a batch in progress."""
_LOOK = 1.0  # seconds between two checks of the loader processes while no batch comes
# Loaders with a dead process, kept because torch waits for that process when it deletes them.
_abandoned: list[Any] = []


@dataclass
class _End:
    fault: BaseException  # StopIteration where the source has simply ended


class Ahead(Iterator[Any]):
    """Iterates over ``source``, in one thread at a time, and keeps one item prefetched.

    The first item is made in the calling thread, so that reading a single batch starts no thread.

    Args:
        workers: processes that must be alive.
        threaded: False makes every item in the calling thread, when it is asked for.
    """

    def __init__(self, source: Iterator[Any], workers: Sequence[BaseProcess] = (), threaded: bool = True) -> None:
        self._source, self._begun, self._closed, self.workers = source, bool(workers), False, workers
        self._threaded = threaded
        self._thread: threading.Thread | None = None
        self._made: SimpleQueue[Any] = SimpleQueue()
        self._taken = threading.Semaphore(0)
        self._ended = False

    def __next__(self) -> Any:
        if not self._begun or not self._threaded:
            self._begun = True
            return next(self._source)
        if self._ended:
            raise StopIteration
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=THREAD, daemon=True)
            self._thread.start()
            _running.add(self)
            atexit.unregister(_end_threads)
            atexit.register(_end_threads)  # the last to be registered runs first: before loader processes are killed
        item = self._wait()
        if isinstance(item, _End):  # an exception by itself may be an item: a batch that cannot be read
            self._ended = True
            if not isinstance(item.fault, StopIteration):
                self._look()  # torch's fault may only say that a worker is gone
            raise item.fault
        self._taken.release()
        return item

    @property
    def works(self) -> bool:
        """True while the thread waits for an item, after :meth:`close` as well."""
        return self._thread is not None and self._thread.is_alive()

    def _wait(self) -> Any:
        while True:
            self._look()
            with suppress(Empty):
                return self._made.get(timeout=_LOOK if self.workers else None)

    def _look(self) -> None:
        dead = next((worker for worker in self.workers if worker.exitcode), None)
        if dead is None or self._closed:
            return
        self._closed = True
        _abandoned.append(self._source)
        for worker in self.workers:
            worker.kill()  # they ignore signals to end, and would be waited for at the exit of this process
        for worker in self.workers:
            worker.join(PATIENCE)  # the next loader must not find a child that is about to end
        what, got = "A process that loads data died.", f"process {dead.pid}: {how_it_ended(dead.exitcode or 0)}"
        hint = "run the same command again: it goes on from what is kept; with fewer `workers` if memory ran out"
        raise VlcliError(what, got=got, hint=hint)

    def close(self) -> None:
        waits, self._closed = not self._closed, True
        self._taken.release()
        if self._thread is not None and waits:
            self._thread.join(PATIENCE)

    def _work(self) -> None:
        while not self._closed:
            try:
                self._made.put(next(self._source))
            except BaseException as fault:  # the end, too: __next__ raises it
                return self._made.put(_End(fault))
            self._taken.acquire()
        return None


_running: WeakSet[Ahead] = WeakSet()


def _end_threads() -> None:
    # A daemon thread that is in torch when the interpreter ends cannot be unwound through C++, and aborts the process.
    for ahead in list(_running):
        ahead.close()
        if ahead._thread is not None:
            ahead._thread.join(PATIENCE)


def from_workers(loader: Iterable[Any], workers: Sequence[BaseProcess] = ()) -> Ahead:
    """Reads a DataLoader, whose ``workers`` of an earlier epoch torch waits for: that happens in the thread."""

    def later() -> Iterator[Any]:
        yield from loader

    if workers:
        return Ahead(later(), workers)
    known = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
    others = set(multiprocessing.active_children())  # those of an earlier loader may be dying
    source = iter(loader)
    if known is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, known)  # torch would raise wherever the main thread is when a worker dies
    return Ahead(source, [child for child in multiprocessing.active_children() if child not in others])


def usable_cores() -> set[int]:
    """Returns the processor cores that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def how_it_ended(code: int) -> str:
    """Returns the exit code of a child process as text; a negative code is the signal that ended it."""
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"{name}, perhaps because memory ran out" if name in ("SIGKILL", "SIGBUS") else name
