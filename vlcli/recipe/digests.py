"""What the data files of a stage held when it read them, and whether they hold the same still.

A row of ``Record.data`` keeps a file's path, size, time, inode and digest. Size, time and inode unchanged spare
reading; otherwise the whole file is read. Rows written before the inode was kept hold, of files over
16 MiB, a digest of the size and of the first and last 4 MiB only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from vlcli.errors import DataError
from vlcli.recipe.ledger import digest, finished

_BLOCK = 4 * 2**20
_ENDS_ONLY_OVER = 16 * 2**20
"""Of files larger than this, earlier versions hashed the two ends only."""
_MANY = 5000
_REMEMBERED = 4096


def data_digests(paths: Sequence[Path], known: Iterable[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """What ``paths`` hold, for ``Record.data``; each once.

    Args:
        paths: files and folders.
        known: rows of other records. Where size, time and inode are those of one, its digest is taken without reading.

    Raises:
        DataError: one cannot be read.
    """
    digests = {(row["path"], row["size"], row["mtime"], row["inode"]): row["digest"] for row in known if "inode" in row}
    return [_row(path, digests) for path in dict.fromkeys(p.absolute() for p in paths)]


def changed(rows: Sequence[dict[str, Any]]) -> str:
    """Why the recorded files are no longer what they were, of the first that is not; empty where all are."""
    return next((why for row in rows if (why := _why(row))), "")


def _why(row: dict[str, Any]) -> str:
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
    """Of a file whose time or inode is another: whether its content is."""
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
    """Hash of a file's size and whole content.

    Remembered in this process by size, time and inode (``known``), since a run plans its stages repeatedly.
    """
    hashed = hashlib.sha256(str(known[0]).encode())
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            hashed.update(block)
    return hashed.hexdigest()


def _folder_digest(path: Path) -> str:
    """Hash of a folder's listing: names, and sizes where there are not too many. A stage's folder: its fingerprint."""
    if done := finished(path):
        return done[1].fingerprint
    with os.scandir(path) as found:
        items = sorted(found, key=lambda item: item.name)
    sizes = len(items) <= _MANY
    return digest([(item.name, item.stat().st_size if sizes and item.is_file() else 0) for item in items])
