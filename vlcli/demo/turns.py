"""Lets requests to the model one after another, in the order of arrival, a limited number of them."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Busy(Exception):  # noqa: N818 - a state, which the page shows as such
    """Too many requests wait already; ``seconds`` estimates when one more may."""

    def __init__(self, waiting: int, seconds: float) -> None:
        super().__init__(f"{waiting} requests wait already")
        self.waiting, self.seconds = waiting, seconds


class Turns:
    """Lets one thread at a time to the model; of more than ``most`` that wait, one is refused."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._times: deque[float] = deque([1.0], maxlen=5)

    @property
    def usual(self) -> float:
        """Seconds of the slowest of the last five turns."""
        return max(self._times)

    @property
    def waiting(self) -> int:
        """Threads that wait or have their turn."""
        return len(self._queue)

    @contextmanager
    def turn(self) -> Iterator[float]:
        """Wait for this thread's turn and keep it while the section lasts; yields the seconds that it waited.

        Raises:
            Busy: too many wait already.
        """
        came, me = time.monotonic(), object()
        with self._changed:
            if len(self._queue) > self.most:
                raise Busy(len(self._queue), len(self._queue) * self.usual)
            self._queue.append(me)
            self._changed.wait_for(lambda: self._queue[0] is me)
        begun = time.monotonic()
        try:
            yield begun - came
        finally:
            self._times.append(time.monotonic() - begun)
            with self._changed:
                self._queue.popleft()
                self._changed.notify_all()

    def forget(self) -> None:
        """Forget the times measured so far: the first pass of a model takes longer than later ones."""
        self._times.clear()
        self._times.append(0.1)
