"""Pictures at remote addresses (``s3://``, ``gs://``, ``https://`` ...), by fsspec: read where they are needed.

Nothing is copied to the disk. Connections fail now and then: each step is tried several times.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from vlcli.errors import DataError
from vlcli.files import is_remote

__all__ = ["absent", "file_system", "files_below", "is_remote", "read_bytes", "tried"]

TRIES = 5
WAIT = 0.5
"""Seconds before the second try; twice as long before each further one."""
HEAD = 1 << 16
"""Bytes of a picture in which its size is looked for first."""
T = TypeVar("T")


def read_bytes(address: str, most: int | None = None) -> bytes:
    """The content of a remote file, or its first ``most`` bytes: more where a server cannot send a part.

    Raises:
        FileNotFoundError: there is none.
        DataError: it cannot be read in :data:`TRIES` tries.
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
    """The addresses of all files in a remote folder, subfolders included, sorted.

    Raises:
        DataError: there is no such folder, or it cannot be listed.
    """
    system, path = file_system(address)
    try:
        names = tried(address, lambda: system.find(path))
    except FileNotFoundError:
        raise absent(address) from None
    return sorted(system.unstrip_protocol(name) for name in names)


def file_system(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path there.

    Raises:
        DataError: no package knows such addresses.
    """
    import fsspec

    try:
        found: tuple[Any, str] = fsspec.core.url_to_fs(address)
        return found
    except (ImportError, ValueError) as error:
        named = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "http": "aiohttp", "https": "aiohttp"}
        package = named.get(address.partition("://")[0].lower())
        hint = f"pip install {package}" if package else "name an address that fsspec knows, or a path"
        what = "Addresses of this kind cannot be read here."
        raise DataError(what, where=address, got=str(error).split("\n")[0], hint=hint) from None


def tried(address: str, act: Callable[[], T]) -> T:
    """What ``act`` gives, tried again where it fails.

    Raises:
        FileNotFoundError: the file is not there.
        DataError: it failed every time.
    """
    for number in range(TRIES):
        try:
            return act()
        except (FileNotFoundError, DataError):
            raise
        except Exception as error:  # each file system has errors of its own
            if number + 1 == TRIES:
                raise _lost(address, error) from None
            time.sleep(WAIT * 2**number)
    raise AssertionError(address)


def absent(address: str) -> DataError:
    """The error of an address where nothing is."""
    return DataError("There is no such remote file.", where=address, hint="check the address")


def _lost(address: str, error: Exception) -> DataError:
    text = (str(error).strip() or "no message").split("\n")[0][:200]
    return DataError(
        "A remote file cannot be fetched.",
        where=address,
        got=f"{TRIES} tries; the last: {type(error).__name__}: {text}",
        expected="an address that can be read from here",
        hint="check the network and the rights, and run the same command again: what was fetched is kept",
    )
