"""Prefetching: a thread makes the next batch while the model trains on the current one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

PATIENCE = 2.0
"""Seconds that ``close`` waits for a batch in progress."""


@dataclass
class _End:
    """Marks the end of the items: ``fault`` was raised, or the source is exhausted."""

    fault: BaseException | None = None


class Ahead(Iterator[Any]):
    """Iterates over ``source`` and keeps one item prefetched.

    Torch releases the global interpreter lock during much of a training step; a thread makes the next batch meanwhile.
    The first item is made in the calling thread and the second starts the thread, so that reading a single batch starts
    no thread.

    Args:
        source: the iterator; used by one thread at a time.
    """

    def __init__(self, source: Iterator[Any]) -> None:
        self._source, self._begun, self._closed = source, False, False
        self._thread: threading.Thread | None = None
        self._made: SimpleQueue[Any] = SimpleQueue()
        self._taken = threading.Semaphore(0)
        self._end: _End | None = None

    def __next__(self) -> Any:
        """The next item; an exception of ``source`` is raised here."""
        if not self._begun:
            self._begun = True
            return next(self._source)
        if self._end is not None:
            raise StopIteration
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="vlcli-batches", daemon=True)
            self._thread.start()
        item = self._made.get()
        if not isinstance(item, _End):
            self._taken.release()
            return item
        self._end = item
        if item.fault is not None:
            raise item.fault
        raise StopIteration

    def close(self) -> None:
        """Stop prefetching and wait briefly for the thread."""
        self._closed = True
        self._taken.release()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def _work(self) -> None:
        while not self._closed:
            try:
                item = next(self._source)
            except StopIteration:
                return self._made.put(_End())
            except BaseException as fault:  # passed on: __next__ raises it
                return self._made.put(_End(fault))
            self._made.put(item)
            self._taken.acquire()
        return None
