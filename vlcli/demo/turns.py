"""Lets requests to the model one after another, in the order of arrival, a limited number of them."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from vlcli.errors import VlcliError


class Busy(VlcliError):  # noqa: N818 - a state, which the page shows as such
    """Too many requests wait already; ``seconds`` estimates when one more may."""

    def __init__(self, waiting: int, seconds: float) -> None:
        super().__init__("The model is busy.", got=f"{waiting} requests wait already", hint="try again in a moment")
        self.seconds = seconds


class Turns:
    """Lets one thread at a time to the model; of more than ``most`` that wait, one is refused."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._times = deque([1.0], maxlen=5)

    @property
    def usual(self) -> float:
        return max(self._times)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @contextmanager
    def turn(self) -> Iterator[dict[str, float]]:
        """Wait for this thread's turn and keep it while the section lasts; Busy: too many wait already.

        Yields a mapping that gets the ``seconds`` of the turn and those ``waited`` when the section ends.
        """
        came, me, times = time.monotonic(), object(), dict[str, float]()
        with self._changed:
            if len(self._queue) > self.most:
                raise Busy(len(self._queue), len(self._queue) * self.usual)
            self._queue.append(me)
            self._changed.wait_for(lambda: self._queue[0] is me)
        begun = time.monotonic()
        try:
            yield times
        finally:
            times |= {"seconds": round(time.monotonic() - begun, 3), "waited": round(begun - came, 3)}
            self._times.append(times["seconds"])
            with self._changed:
                self._queue.popleft()
                self._changed.notify_all()

    def forget(self) -> None:
        """Forget the times measured so far: the first pass of a model takes longer than later ones."""
        self._times.clear()
        self._times.append(0.1)
