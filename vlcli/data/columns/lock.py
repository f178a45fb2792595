"""Locks a folder for one process; the lock goes with the process that holds it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from vlcli.errors import DataError


@contextlib.contextmanager
def locked(folder: Path, hint: str = "choose another output folder") -> Iterator[None]:
    """Create the folder and hold its lock, waiting for whoever holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a+", encoding="utf-8")
    except OSError as error:
        what = "A folder for what is kept between runs cannot be written to."
        raise DataError(what, where=str(folder), got=str(error), hint=hint) from None
    with file:
        try:
            import fcntl
        except ImportError:  # no such lock on this system
            yield
            return
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:  # a file system without locks: each writes beside and renames
                break
        yield
