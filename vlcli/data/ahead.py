"""The next batch made in a thread while this one is trained on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

PATIENCE = 2.0
"""Seconds that closing waits for a batch that is being made."""


@dataclass
class _End:
    """What stands for the end of the batches: by a fault, or because there are no more."""

    fault: BaseException | None = None


class Ahead(Iterator[Any]):
    """The items of an iterator, one made ahead of being asked for.

    The computation of a step leaves Python's lock free for much of its time; a thread makes the next batch in it. The
    first item is made when it is asked for, and the thread begins with the second: who wants one batch starts none.

    Args:
        source: makes the items; used by one thread at a time.
    """

    def __init__(self, source: Iterator[Any]) -> None:
        self._source, self._begun, self._closed = source, False, False
        self._thread: threading.Thread | None = None
        self._made: SimpleQueue[Any] = SimpleQueue()
        self._taken = threading.Semaphore(0)
        self._end: _End | None = None

    def __next__(self) -> Any:
        """The next item; a fault in making it is raised here."""
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
        """Make no more."""
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
            except BaseException as fault:  # handed over: it is raised where the item is asked for
                return self._made.put(_End(fault))
            self._made.put(item)
            self._taken.acquire()
        return None
