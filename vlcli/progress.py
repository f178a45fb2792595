"""How long work reports itself without printing: the command line hands in an implementation.

Nothing below ``vlcli.cli`` prints. A stage gets a :class:`Progress` and tells it what happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

__all__ = ["Progress", "ProgressTask", "Silent"]


class ProgressTask(Protocol):
    """One long step that is under way."""

    def advance(self, count: int = 1, **facts: float | str) -> None:
        """``count`` more units are done; ``facts`` (loss, rate ...) are shown beside the bar."""


class Progress(Protocol):
    """Where a stage reports: a bar per long step, and lines of text."""

    def info(self, message: str) -> None:
        """A line the user should see."""

    def warn(self, message: str) -> None:
        """A line the user should not miss."""

    def debug(self, message: str) -> None:
        """A line shown with ``-v``."""

    def task(
        self, label: str, total: int | None, unit: str = "it", done: int = 0
    ) -> AbstractContextManager[ProgressTask]:
        """A long step of ``total`` units (None: unknown), of which ``done`` were done before."""


class _SilentTask:
    def advance(self, count: int = 1, **facts: float | str) -> None:
        """Say nothing."""


class Silent:
    """A :class:`Progress` that says nothing (library use, ranks other than 0)."""

    def info(self, message: str) -> None:
        """Say nothing."""

    def warn(self, message: str) -> None:
        """Say nothing."""

    def debug(self, message: str) -> None:
        """Say nothing."""

    @contextmanager
    def task(self, label: str, total: int | None, unit: str = "it", done: int = 0) -> Iterator[ProgressTask]:
        """A step that says nothing."""
        yield _SilentTask()
