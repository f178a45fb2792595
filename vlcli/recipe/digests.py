"""Digests the data files that a stage read, and says whether they have changed since.

A file whose size, modification time and inode are those of its row of ``StageRecord.data`` is not read again; else its
whole content is hashed. Of a folder, the names and sizes of the files below it count (the names alone of more than
5,000). One row stands for all pictures (:mod:`vlcli.recipe.pictures`).
"""

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from vlcli.errors import DataError, shown
from vlcli.files import walk
from vlcli.recipe import pictures
from vlcli.recipe.stage_record import digest, finished
from vlcli.registry.contract import blamed

_MANY = 5000


def read_files(reader: Any) -> list[Path]:
    """Returns the files that a reader reads, and the lists of pictures that its ``take`` names."""
    with blamed("datasets", getattr(reader, "label", "?"), type(reader)):  # a stranger's may lack the base class
        files = [*reader.files(), *getattr(reader, "picture_lists", list)()]
        if wrong := [one for one in files if not isinstance(one, Path)]:
            raise TypeError(f"files() gives {shown(wrong[0])}, which is no Path")
    return files


def data_digests(paths: Sequence[Path], known: Iterable[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """Returns the rows of ``StageRecord.data`` for files and folders. Raises DataError: a file cannot be read.

    A file with the size, time and inode of a row of ``known`` gets its digest and is not read.
    """
    digests = {(row["path"], row["size"], row["mtime"], row["inode"]): row["digest"] for row in known if "inode" in row}
    rows: list[dict[str, Any]] = []
    for path in dict.fromkeys(path.absolute() for path in paths):
        try:
            facts = _facts(path)
            kept = _folder_digest(path) if path.is_dir() else digests.get((str(path), *facts))
            content = kept or _file_digest(path, facts)
        except OSError as error:
            raise DataError("A data file cannot be read.", where=str(path), got=str(error)) from error
        rows.append({"path": str(path), **dict(zip(("size", "mtime", "inode"), facts, strict=True)), "digest": content})
    return rows


def changed(rows: Sequence[dict[str, Any]], folder: Path = Path()) -> str:
    """Returns how the first changed file differs from its row, or an empty text; ``folder`` is the stage's."""
    return next((why for row in rows if (why := _why(folder, row))), "")


def _why(folder: Path, row: dict[str, Any]) -> str:
    if "pictures" in row:
        return pictures.changed(folder, row)
    path = Path(row["path"])
    try:
        facts = _facts(path)
        if path.is_dir():
            return "" if _folder_digest(path) == row["digest"] else f"{path} holds other files"
        if facts[0] != row["size"]:
            return f"{path} has another size"
        same = facts[1:] == (row["mtime"], row.get("inode")) or _file_digest(path, facts) == row["digest"]
        return "" if same else f"{path} has changed"
    except (OSError, DataError):
        return f"{path} is gone or cannot be read"


def _facts(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


@lru_cache(4096)  # a run plans its stages repeatedly
def _file_digest(path: Path, facts: tuple[int, int, int]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.sha256(str(facts[0]).encode())).hexdigest()


def _folder_digest(path: Path) -> str:
    if done := finished(path):
        return done[1].fingerprint
    files = [below / name for below, names in walk(path) for name in names]
    sizes = [file.stat().st_size if len(files) <= _MANY and file.exists() else 0 for file in files]
    return digest([(str(file.relative_to(path)), size) for file, size in zip(files, sizes, strict=True)])
