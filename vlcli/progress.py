"""Defines the interface by which long work reports; the command line passes an implementation."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

__all__ = ["Progress", "ProgressTask", "Silent"]


class ProgressTask(Protocol):
    """One long step that is running."""

    def advance(self, count: int = 1, **facts: float | str) -> None:
        """Adds ``count`` finished units; shows ``facts`` (loss, rate ...) beside the bar."""


class Progress(Protocol):
    """Shows a bar per long step, and lines of text."""

    def info(self, message: str) -> None: ...

    def warn(self, message: str) -> None: ...

    def debug(self, message: str) -> None:
        """Shows a line with ``-v``."""

    def task(
        self, label: str, total: int | None, unit: str = "it", done: int = 0
    ) -> AbstractContextManager[ProgressTask]:
        """Begins a long step of ``total`` units (None: unknown), of which ``done`` were done before."""


class _SilentTask:
    def advance(self, count: int = 1, **facts: float | str) -> None: ...


class Silent:
    """A :class:`Progress` without output (library use, ranks other than 0)."""

    def info(self, message: str) -> None: ...

    def warn(self, message: str) -> None: ...

    def debug(self, message: str) -> None: ...

    @contextmanager
    def task(self, label: str, total: int | None, unit: str = "it", done: int = 0) -> Iterator[ProgressTask]:
        yield _SilentTask()
