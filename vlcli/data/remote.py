"""Copies files at remote addresses (``s3://``, ``gs://``, ``https://`` ...) to the cache, by fsspec.

A copy is whole or absent, lies under ``VLCLI_CACHE`` (by default ``~/.cache/vlcli``), and is fetched again when the
remote file has another size, time or tag. Each step is tried several times.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from vlcli.files import locked, write_json, written
from vlcli.images.remote import absent, file_system, is_remote, tried

__all__ = ["CACHE", "cache_folder", "is_remote", "local_copy", "matching"]

CACHE = "VLCLI_CACHE"
_MARKS = ("size", "mtime", "LastModified", "last_modified", "updated", "etag", "ETag", "md5Hash", "created")
_BLOCK = 1 << 22
# Copies that this process has compared with the remote file.
_checked: dict[str, Path] = {}
T = TypeVar("T")


def cache_folder() -> Path:
    """Return the folder of the copies."""
    folder = os.environ.get(CACHE)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(folder).expanduser() if folder else home / "vlcli"


def local_copy(address: str) -> Path:
    """Return the copy of a remote file, fetched where it is missing or out of date."""
    known = _checked.get(address)
    if known is not None and known.is_file():
        return known
    folder = cache_folder() / "remote" / hashlib.sha256(address.encode()).hexdigest()[:16]
    copy, note = folder / (address.rstrip("/").rpartition("/")[2] or "file"), folder / "source.json"
    system, path = file_system(address)
    info = _tried(address, lambda: system.info(path))
    marks: dict[str, Any] = {name: info[name] if name == "size" else str(info[name]) for name in _MARKS if name in info}
    with locked(folder, f"name another folder for copies: {CACHE}=FOLDER"):
        if not copy.is_file() or _noted(note) != marks:
            _tried(address, lambda: _fetch(system, path, copy, marks.get("size")))
            write_json(note, marks)
    _checked[address] = copy
    return copy


def matching(pattern: str) -> list[str]:
    """Return the addresses that a pattern with ``*`` names, sorted."""
    system, path = file_system(pattern)
    return sorted(map(system.unstrip_protocol, _tried(pattern, lambda: system.glob(path))))


def _tried(address: str, act: Callable[[], T]) -> T:
    try:
        return tried(address, act)
    except FileNotFoundError:
        raise absent(address) from None


def _noted(note: Path) -> Any:
    try:
        return json.loads(note.read_bytes())
    except (OSError, ValueError):
        return None


def _fetch(system: Any, path: str, copy: Path, size: int | None) -> None:
    with written(copy) as beside:
        with system.open(path, "rb") as source, beside.open("wb") as out:
            shutil.copyfileobj(source, out, _BLOCK)
        if size is not None and beside.stat().st_size != size:
            raise OSError(f"{beside.stat().st_size:,} of {size:,} bytes came")
