"""Reads files at remote addresses (``s3://``, ``gs://``, ``https://`` ...) by fsspec, with several tries."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from vlcli.errors import DataError
from vlcli.files import is_remote

__all__ = ["absent", "file_system", "files_below", "is_remote", "read_bytes", "tried"]

TRIES = 5
# Seconds before the second try; twice as long before each further one.
WAIT = 0.5
# Bytes of a picture that are read first for its size.
HEAD = 1 << 16
T = TypeVar("T")


def read_bytes(address: str, most: int | None = None) -> bytes:
    """Read a remote file, or its first ``most`` bytes: more where a server cannot send a part.

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
    """Return the addresses of all files in a remote folder, subfolders included, sorted."""
    system, path = file_system(address)
    try:
        names = tried(address, lambda: system.find(path))
    except FileNotFoundError:
        raise absent(address) from None
    return sorted(system.unstrip_protocol(name) for name in names)


def file_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path there. Raises DataError: no package knows such addresses."""
    import fsspec

    try:
        system_and_path: tuple[Any, str] = fsspec.core.url_to_fs(address)
        return system_and_path
    except (ImportError, ValueError) as error:
        named = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "http": "aiohttp", "https": "aiohttp"}
        package = named.get(address.partition("://")[0].lower())
        hint = f"pip install {package}" if package else "name an address that fsspec knows, or a path"
        what = "Addresses of this kind cannot be read here."
        raise DataError(what, where=address, got=str(error).split("\n")[0], hint=hint) from None


def tried(address: str, act: Callable[[], T]) -> T:
    """Call ``act``, again where it fails.

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
                text = (str(error).strip() or "no message").split("\n")[0][:200]
                raise DataError(
                    "A remote file cannot be fetched.",
                    where=address,
                    got=f"{TRIES} tries; the last: {type(error).__name__}: {text}",
                    expected="an address that can be read from here",
                    hint="check the network and the rights, and run the same command again: what was fetched is kept",
                ) from None
            time.sleep(WAIT * 2**number)
    raise AssertionError(address)


def absent(address: str) -> DataError:
    """Make the error for an address without a file."""
    return DataError("There is no such remote file.", where=address, hint="check the address")
