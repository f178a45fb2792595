"""Digests of the data files that a stage read, and whether the files have changed since.

A row of ``Record.data`` has a file's path, size, modification time, inode and digest. A file whose size, time and inode
are unchanged is not read again; otherwise its whole content is hashed. Rows of earlier versions have no inode, and
for files over 16 MiB their digest covers only the size and the first and last 4 MiB. One row stands for all pictures:
see :mod:`vlcli.recipe.pictures`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from vlcli.errors import DataError
from vlcli.recipe import pictures
from vlcli.recipe.stage_record import digest, finished

_BLOCK = 4 * 2**20
_ENDS_ONLY_OVER = 16 * 2**20
"""Of files larger than this, earlier versions hashed the two ends only."""
_MANY = 5000
_REMEMBERED = 4096


def data_digests(paths: Sequence[Path], known: Iterable[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """The rows of ``Record.data`` for ``paths``, without duplicates.

    Args:
        paths: files and folders.
        known: rows of other records. A file with the size, time and inode of one gets its digest and is not read.

    Raises:
        DataError: a file cannot be read.
    """
    digests = {(row["path"], row["size"], row["mtime"], row["inode"]): row["digest"] for row in known if "inode" in row}
    return [_row(path, digests) for path in dict.fromkeys(p.absolute() for p in paths)]


def changed(rows: Sequence[dict[str, Any]], folder: Path = Path()) -> str:
    """How the first file that has changed differs from its recorded row; empty where none has changed.

    Args:
        rows: of a record.
        folder: of its stage, which holds the list of its pictures.
    """
    return next((why for row in rows if (why := _why(folder, row))), "")


def _why(folder: Path, row: dict[str, Any]) -> str:
    if "pictures" in row:
        return pictures.changed(folder, row)
    path = Path(row["path"])
    try:
        stat = path.stat()
        if path.is_dir():
            return "" if _folder_digest(path) == row["digest"] else f"{path} holds other files"
        if stat.st_size != row["size"]:
            return f"{path} has another size"
        if stat.st_mtime_ns == row["mtime"] and row.get("inode") in (None, stat.st_ino):
            return ""
        return _why_content(path, stat, row)
    except (OSError, DataError):
        return f"{path} is gone or cannot be read"


def _why_content(path: Path, stat: os.stat_result, row: dict[str, Any]) -> str:
    if "inode" in row or stat.st_size <= _ENDS_ONLY_OVER:
        same = _file_digest(path, (stat.st_size, stat.st_mtime_ns, stat.st_ino)) == row["digest"]
        return "" if same else f"{path} has changed"
    # What lies between the ends was never hashed, so that an edit there cannot be told from a mere copy.
    return f"{path} has another time, and an earlier version had recorded its ends only"


def _row(path: Path, digests: dict[tuple[str, int, int, int], str]) -> dict[str, Any]:
    try:
        stat = path.stat()
        known = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        if path.is_dir():
            content = _folder_digest(path)
        else:
            content = digests.get((str(path), *known)) or _file_digest(path, known)
    except OSError as error:
        raise DataError("A data file cannot be read.", where=str(path), got=str(error)) from error
    return {"path": str(path), **dict(zip(("size", "mtime", "inode"), known, strict=True)), "digest": content}


@lru_cache(_REMEMBERED)
def _file_digest(path: Path, known: tuple[int, int, int]) -> str:
    hashed = hashlib.sha256(str(known[0]).encode())
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            hashed.update(block)
    return hashed.hexdigest()


def _folder_digest(path: Path) -> str:
    if done := finished(path):
        return done[1].fingerprint
    with os.scandir(path) as found:
        items = sorted(found, key=lambda item: item.name)
    sizes = len(items) <= _MANY
    return digest([(item.name, item.stat().st_size if sizes and item.is_file() else 0) for item in items])
