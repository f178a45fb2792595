"""An evaluation that all processes do together, which a signal to any of them ends on all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from vlcli import stopping
from vlcli.detection.extraction import Share
from vlcli.engine import processes

T = TypeVar("T")


class Together:
    """The meetings of the processes in one evaluation.

    Every meeting tells whether a process was asked to end. One that was asked comes to one more meeting, whichever the
    others come to next, and tells them there: nobody waits for it in vain.
    """

    def __init__(self) -> None:
        self.number = 0

    def gather(self, value: Any, asked: int = 0) -> list[Any]:
        """Every process's ``value``, in order of rank.

        Raises:
            Stopped: a process was asked to end.
        """
        with stopping.held():
            rows = processes.collect((asked, value))
        self.number = max(number for number, _ in rows)
        if self.number:
            raise stopping.Stopped(self.number)
        return [own for _, own in rows]

    def wait(self) -> None:
        """Wait for all processes.

        Raises:
            Stopped: a process was asked to end.
        """
        self.gather(None)

    def share(self) -> Share:
        """This process's part."""
        return Share(processes.rank(), processes.world(), self.wait, self.gather)

    def run(self, work: Callable[[], T]) -> T:
        """The result of ``work``, which every process does.

        Raises:
            Stopped: a process was asked to end; raised on all of them.
        """
        try:
            with stopping.opened():
                found = work()
            self.wait()
        except stopping.Stopped as stop:
            if not self.number:  # it came to this process
                with suppress(stopping.Stopped):
                    self.gather(None, stop.number)
            raise
        return found
