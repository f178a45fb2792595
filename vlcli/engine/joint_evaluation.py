"""Evaluates with all processes together; a signal to any of them ends the evaluation on all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from vlcli import stopping
from vlcli.detection.extraction import Share
from vlcli.engine import processes

T = TypeVar("T")


class JointEvaluation:
    """The collective operations of one evaluation; every one of them tells whether a process got a signal.

    A process that got one comes to one more operation, whichever the others come to next, so that none waits in vain.
    """

    def __init__(self) -> None:
        self.signal = 0

    def gather(self, value: Any, signal: int = 0) -> list[Any]:
        """Return every process's ``value``, in order of rank.

        Raises:
            Stopped: a process got a signal.
        """
        with stopping.held():
            rows = processes.collect((signal, value))
        self.signal = max(signal for signal, _ in rows)
        if self.signal:
            raise stopping.Stopped(self.signal)
        return [value for _, value in rows]

    def wait(self) -> None:
        """Wait for all processes.

        Raises:
            Stopped: a process got a signal.
        """
        self.gather(None)

    def share(self) -> Share:
        """Return this process's share of the batches."""
        return Share(processes.rank(), processes.world(), self.wait, self.gather)

    def run(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``, which every process does.

        Raises:
            Stopped: a process got a signal; raised on all of them.
        """
        try:
            with stopping.opened():
                result = work()
            self.wait()
        except stopping.Stopped as stop:
            if not self.signal:  # it came to this process
                with suppress(stopping.Stopped):
                    self.gather(None, stop.number)
            raise
        return result
