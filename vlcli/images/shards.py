"""Reads files inside tar files by paths such as ``cc3m/00000.tar/000000012.jpg``.

Shards in the layout of webdataset are read in place: a picture costs one seek; only the members' offsets are kept.
"""

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

# Shards whose members' offsets are kept; ten thousand members take a third of a megabyte.
KEPT = 4096


class BadShardError(Exception):
    """Raised if a tar file cannot be read, or not to its end; the message is one line with the reason."""


class EndMissingError(BadShardError):
    """A tar file whose members are whole, without the zeros that end one."""


class Member(NamedTuple):
    """One file of a shard: its name, and the offset and number of its bytes."""

    name: str
    start: int
    size: int


@dataclass(frozen=True)
class ShardIndex:
    """Offsets and sizes of the members of a shard, sorted by name."""

    names: NDArray[np.bytes_]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def find(self, name: str) -> tuple[int, int] | None:
        key = np.bytes_(os.fsencode(name))
        row = int(np.searchsorted(self.names, key))
        if row == len(self.names) or self.names[row] != key:
            return None
        return int(self.starts[row]), int(self.sizes[row])


def members(shard: Path) -> Iterator[Member]:
    """Yield the files of a shard in its order; links, folders and the like are skipped."""
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
    """Split a path into a shard into the shard and the member's name; None of any other path."""
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
    return inner is not None and shard_index(inner[0]).find(inner[1]) is not None


def read_member(shard: Path, name: str) -> bytes:
    """Return the bytes of one member. Raises FileNotFoundError: the shard has no such member."""
    member = shard_index(shard).find(name)
    if member is None:
        raise FileNotFoundError(f"{shard}/{name}")
    with shard.open("rb") as file:
        file.seek(member[0])
        return file.read(member[1])


def shard_index(shard: Path) -> ShardIndex:
    """Return the index of a shard, of a damaged one the members before the damage. Kept until the file changes."""
    try:
        state = shard.stat()
    except OSError:
        return _index("", None)
    return _index(str(shard), (state.st_size, state.st_mtime_ns))


@lru_cache(KEPT)
def _index(shard: str, state: tuple[int, int] | None) -> ShardIndex:
    rows: list[Member] = []
    with suppress(BadShardError):  # whoever lists the shard says so
        rows.extend(members(Path(shard)) if state is not None else ())
    names = np.array([os.fsencode(member.name) for member in rows], dtype=np.bytes_)
    order = np.argsort(names, kind="stable")
    starts, sizes = (np.array([member[column] for member in rows], np.int64)[order] for column in (1, 2))
    return ShardIndex(names[order], starts, sizes)
