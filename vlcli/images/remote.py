"""Reads files at remote addresses (``s3://``, ``gs://``, ``https://`` ...) by fsspec, or copies them to the cache.

A copy is whole or absent, lies under ``VLCLI_CACHE`` (by default ``~/.cache/vlcli``), and is fetched again when the
remote file has another size, time or tag. Each step is tried several times.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from vlcli.errors import DataError
from vlcli.files import is_remote, locked, write_json, written

__all__ = ["CACHE", "cache_folder", "file_system", "files_below", "is_remote", "local_copy", "matching", "read_bytes"]

TRIES = 5
# Seconds before the second try; twice as long before each further one.
WAIT = 0.5
# Bytes of a picture that are read first for its size.
HEAD = 1 << 16
T = TypeVar("T")


def read_bytes(address: str, most: int | None = None) -> bytes:
    """Read a remote file, or its first ``most`` bytes: more where a server cannot send a part.

    Raises FileNotFoundError: there is none. Raises DataError: it cannot be read in :data:`TRIES` tries.
    """
    system, path = file_system(address)
    if most is not None:
        try:
            return bytes(system.cat_file(path, start=0, end=most))
        except FileNotFoundError:
            raise
        except Exception:  # noqa: S110  # no parts here, an empty file, or a fault: see the whole
            pass
    return bytes(tried(address, lambda: system.cat_file(path)))


def files_below(address: str) -> list[str]:
    """Return the addresses of all files in a remote folder, subfolders included, sorted."""
    system, path = file_system(address)
    return sorted(map(system.unstrip_protocol, _tried(address, lambda: system.find(path))))


def file_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path there. Raises DataError: no package knows such addresses."""
    import fsspec

    try:
        return cast(tuple[Any, str], fsspec.core.url_to_fs(address))
    except (ImportError, ValueError) as error:
        named = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "http": "aiohttp", "https": "aiohttp"}
        package = named.get(address.partition("://")[0].lower())
        hint = f"pip install {package}" if package else "name an address that fsspec knows, or a path"
        what = "Addresses of this kind cannot be read here."
        raise DataError(what, where=address, got=str(error).split("\n")[0], hint=hint) from None


def tried(address: str, act: Callable[[], T]) -> T:
    """Call ``act``, again where it fails. Raises FileNotFoundError at once, DataError after :data:`TRIES` tries."""
    for number in range(TRIES):
        try:
            return act()
        except (FileNotFoundError, DataError):
            raise
        except Exception as error:  # each file system has errors of its own
            if number + 1 == TRIES:
                text = (str(error).strip() or "no message").split("\n")[0][:200]
                what = "A remote file cannot be fetched."
                got = f"{TRIES} tries; the last: {type(error).__name__}: {text}"
                expected = "an address that can be read from here"
                hint = "check the network and the rights, and run the same command again: what was fetched is kept"
                raise DataError(what, where=address, got=got, expected=expected, hint=hint) from None
            time.sleep(WAIT * 2**number)
    raise AssertionError(address)


CACHE = "VLCLI_CACHE"
_MARKS = ("size", "mtime", "LastModified", "last_modified", "updated", "etag", "ETag", "md5Hash", "created")
_BLOCK = 1 << 22
# Copies that this process has compared with the remote file.
_checked: dict[str, Path] = {}


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
        fetched = None
        with suppress(OSError, ValueError):
            fetched = json.loads(note.read_bytes())
        if not copy.is_file() or fetched != marks:
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
        raise DataError("There is no such remote file.", where=address, hint="check the address") from None


def _fetch(system: Any, path: str, copy: Path, size: int | None) -> None:
    with written(copy) as beside:
        with system.open(path, "rb") as source, beside.open("wb") as out:
            shutil.copyfileobj(source, out, _BLOCK)
        if size is not None and beside.stat().st_size != size:
            raise OSError(f"{beside.stat().st_size:,} of {size:,} bytes came")
