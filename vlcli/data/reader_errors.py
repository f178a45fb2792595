"""Makes the errors of readers for files that are missing, empty, of another format, or of one id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vlcli.errors import DataError
from vlcli.registry.contract import blame


def missing(reader: Any, file: Path) -> DataError:
    """Make the error for a missing file of a data set."""
    known = f"; splits are {', '.join(reader.splits)}" if reader.splits else ""
    return DataError(
        f"A file of the data set is missing (split {reader.split!r}{known}).",
        where=str(file),
        hint="point the recipe's `root` at the folder that holds it, e.g. root=DATA",
    )


def senseless(reader: Any, error: Exception) -> DataError:
    """Make the error for files at which a reader raised an unexpected exception."""
    return DataError(
        f"The reader {reader.label} makes no sense of its files.",
        where=", ".join(map(str, reader.files()[:3])) or str(reader.root),
        got=f"{type(error).__name__}: {str(error)[:200]}",
        expected="files of the format that it documents",
        hint=f"the reader stopped at {blame(error, type(reader))}; -vv shows the traceback",
    )


def empty(reader: Any, total: int) -> DataError:
    """Make the error for a data set of whose ``total`` examples none is left."""
    files = ", ".join(map(str, reader.files()[:3])) or str(reader.image_folder)
    left_out = ", ".join(f"{count} {reason}" for reason, count in getattr(reader, "left_out", {}).items())
    return DataError(
        f"The data set {reader.label} is empty.",
        where=files,
        got=f"0 of {total} examples"
        + (f" after take={reader.take!r}" if reader.take and total else "")
        + (f"; left out: {left_out}" if left_out and not total else ""),
        expected="one example or more",
        hint="" if left_out and not total else "check `split`, `take` and `limit`",
    )


class SameIdError(DataError):
    """Two pictures of a data set have one id."""


def two_files(name: str, first: Path, second: Path, label: str) -> SameIdError:
    """Make the error for two files of the data set ``label`` with one image id."""
    return SameIdError(f"Two pictures have the id {name!r}.", where=label, got=f"{first} and {second}")


def share_id(name: str, first: Path, second: Path, ids: str, label: str = "") -> DataError:
    """Make the error for two pictures of two data sets with one id."""
    return DataError(
        f"Two pictures have the id {name!r}.",
        where=label,
        got=f"{first} and {second}",
        expected="different names, or the option `ids: path` beside each of these data sets: their paths are ids then",
        hint="ids: path" if ids == "name" else "",
    )
