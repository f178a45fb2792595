"""Files inside tar files: a path that goes on behind one, ``cc3m/00000.tar/000000012.jpg``.

Shards in the layout of webdataset are read where they are: a picture costs one seek, and of a shard only the places of
its members are kept.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KEPT = 4096
"""Shards whose members' places are remembered; ten thousand members take a third of a megabyte."""


class BadShardError(Exception):
    """A tar file that cannot be used, or not beyond some place; the message is the reason, one line."""


class EndMissingError(BadShardError):
    """A tar file whose files are whole, without the zeros that end one."""


class Member(NamedTuple):
    """One file of a shard: its name, where its bytes begin, and how many there are."""

    name: str
    start: int
    size: int


@dataclass(frozen=True)
class Places:
    """Where the members of a shard lie, by name in sorted order."""

    names: NDArray[np.bytes_]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def find(self, name: str) -> tuple[int, int] | None:
        """Start and size of a member; None where there is none."""
        key = np.bytes_(name.encode())
        row = int(np.searchsorted(self.names, key))
        if row == len(self.names) or self.names[row] != key:
            return None
        return int(self.starts[row]), int(self.sizes[row])


def members(shard: Path) -> Iterator[Member]:
    """The files of a shard in its order; links, folders and what else is no file are passed over.

    Raises:
        BadShardError: it is no uncompressed tar file, or (after its whole members) it is cut off or damaged.
    """
    try:
        total = shard.stat().st_size
        with tarfile.open(shard, "r:") as archive:
            for info in archive:
                if info.isreg():
                    if info.offset_data + info.size > total:
                        raise BadShardError(f"it is cut off within {info.name!r}")
                    yield Member(info.name.removeprefix("./"), info.offset_data, info.size)
                archive.members = []  # type: ignore[attr-defined]  # only the places are needed, and not twice
            end = archive.offset
    except tarfile.TarError as error:
        raise BadShardError(_reason(shard, error)) from None
    except OSError as error:
        raise BadShardError(error.strerror or str(error)) from None
    with shard.open("rb") as file:
        file.seek(end)
        rest = file.read(tarfile.BLOCKSIZE)
    if rest.strip(b"\0"):  # something other than the closing zeros follows what was understood
        whole = len(rest) == tarfile.BLOCKSIZE
        raise BadShardError(f"it is damaged from byte {end} on" if whole else f"it is cut off behind byte {end}")
    if not rest:  # every tar file ends with zeros
        raise EndMissingError("its end is missing: it may be cut off between two files")


def _reason(shard: Path, error: tarfile.TarError) -> str:
    with shard.open("rb") as file:
        start = file.read(6)
    if start[:2] == b"\x1f\x8b" or start[:3] == b"BZh" or start == b"\xfd7zXZ\x00":
        return "it is compressed: members of a compressed file cannot be read one by one; decompress it"
    text = str(error)
    return "it is cut off" if "end of data" in text or "truncated" in text else f"it is no tar file ({text})"


def split_path(path: Path) -> tuple[Path, str] | None:
    """The shard and the member's name of a path that goes on behind a file; None of any other."""
    for parent in path.parents:
        if parent.is_file():
            return parent, path.relative_to(parent).as_posix()
        if parent.exists():
            return None
    return None


def is_there(path: Path) -> bool:
    """Whether a file exists, in a folder or in a shard."""
    if os.path.isfile(path):  # noqa: PTH113  # in half the time of Path.is_file
        return True
    inner = split_path(path)
    return inner is not None and places(inner[0]).find(inner[1]) is not None


def read_member(shard: Path, name: str) -> bytes:
    """The bytes of one member.

    Raises:
        FileNotFoundError: the shard has no such member.
    """
    found = places(shard).find(name)
    if found is None:
        raise FileNotFoundError(f"{shard}/{name}")
    with shard.open("rb") as file:
        file.seek(found[0])
        return file.read(found[1])


def places(shard: Path) -> Places:
    """Where the members of a shard lie: of a damaged one those before the damage. Kept until the file changes."""
    try:
        state = shard.stat()
    except OSError:
        return _sorted([])
    return _places(str(shard), (state.st_size, state.st_mtime_ns))


@lru_cache(KEPT)
def _places(shard: str, state: tuple[int, int]) -> Places:  # noqa: ARG001  # another state, another answer
    found: list[Member] = []
    with suppress(BadShardError):  # whoever lists the shard says so
        found.extend(members(Path(shard)))
    return _sorted(found)


def _sorted(found: list[Member]) -> Places:
    names = np.array([member.name.encode() for member in found], dtype=np.bytes_)
    order = np.argsort(names, kind="stable")
    columns = (np.array([member[column] for member in found], np.int64) for column in (1, 2))
    starts, sizes = (column[order] for column in columns)
    return Places(names[order], starts, sizes)
