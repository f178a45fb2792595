"""Where pictures lie, by image id, in columns: what ``Reader.picture`` notes, for any number of pictures.

Paths are kept as the annotations have them, under the image folder where they lie in it. Ids are found by a hash of 64
bits, sorted; the id itself is compared, so that two ids of one hash are told apart.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, MutableMapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from vlcli.data.columns.strings import Mapped, Strings, StringsWriter, write_numbers
from vlcli.data.files import prefix
from vlcli.images.boxes import image_id

_RECENT = 4096
_BLOCK = 512
"""Hashes between two that are in memory."""
_SEPARATOR = b"\0"
Conflict = Callable[[str, Path, Path], Exception]


def hash_of(name: bytes) -> int:
    """64 bits of an id."""
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


class PlacesWriter:
    """Notes of a reader's pictures, written as they come; ids that come twice are sorted out at the end.

    Args:
        folder: of the columns.
        base: the reader's image folder.
        conflict: makes the error for an id that two files answer to, of the id and both paths.
    """

    def __init__(self, folder: Path, base: Path, conflict: Conflict) -> None:
        self.folder, self.base, self._conflict = folder, base, conflict
        self._prefix = prefix(str(base))
        self._hashes: array[int] = array("Q")
        self._recent: dict[str, str] = {}
        self._writer = StringsWriter(folder, "places")

    def note(self, name: str, path: str) -> None:
        """The file of an image."""
        if self._recent.get(name) == path:
            return
        if len(self._recent) >= _RECENT:
            self._recent.clear()
            self._writer.settle()
        self._recent[name] = path
        relative = path.removeprefix(self._prefix)
        own = image_id(path) == name
        self._writer.append(_bytes(relative) if own else _bytes(relative) + _SEPARATOR + _bytes(name))
        self._hashes.append(hash_of(_bytes(name)))

    def finish(self) -> None:
        """Write what finds them.

        Raises:
            Exception: what ``conflict`` makes, where an id has two files.
        """
        self._writer.close()
        hashes = np.frombuffer(self._hashes, np.uint64) if self._hashes else np.zeros(0, np.uint64)
        order = np.argsort(hashes, kind="stable")
        kept = np.ones(len(order), bool)
        again = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]]) + 1
        strings = Strings(self.folder, "places")
        for place in again.tolist():
            kept[place] = self._differs(strings, hashes, order, place)
        rows = order[kept]
        write_numbers(self.folder / "places.hashes", hashes[rows])
        write_numbers(self.folder / "places.fence", np.ascontiguousarray(hashes[rows][::_BLOCK]))
        write_numbers(self.folder / "places.rows", rows.astype(np.int64))

    def _differs(self, strings: Strings, hashes: np.ndarray, order: np.ndarray, place: int) -> bool:
        """Whether what stands at ``place`` has another id than all before it of the same hash."""
        name, path = _parted(strings[int(order[place])], self.base)
        first = place
        while first and hashes[order[first - 1]] == hashes[order[place]]:
            first -= 1
        for other in order[first:place].tolist():
            known, there = _parted(strings[other], self.base)
            if known == name and there != path:
                raise self._conflict(name, there, path)
            if known == name:
                return False
        return True

    def __enter__(self) -> PlacesWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        self._writer.__exit__(*error)


def _parted(record: bytes, base: Path) -> tuple[str, Path]:
    """An id and its path."""
    relative, separator, name = record.partition(_SEPARATOR)
    path = _text(relative)
    return (_text(name) if separator else image_id(path)), base / path


class Places(MutableMapping[str, Path]):
    """Paths by image id, read from columns; what is set afterwards is kept in memory.

    Args:
        folder: of the columns.
        base: the reader's image folder.
    """

    def __init__(self, folder: Path, base: Path) -> None:
        self.base, self._more = Path(os.path.normpath(base)), dict[str, Path]()
        self._hashes, self._rows = Mapped(folder / "places.hashes", "Q"), Mapped(folder / "places.rows", "q")
        self._fence = array("Q", (folder / "places.fence").read_bytes())
        self._records = Strings(folder, "places")

    def __getitem__(self, name: str) -> Path:
        if name in self._more:
            return self._more[name]
        wanted = hash_of(_bytes(name))
        first = max(bisect_left(self._fence, wanted) - 1, 0) * _BLOCK
        hashes = array("Q", self._hashes.read(8 * first, 16 * _BLOCK))
        place = bisect_left(hashes, wanted)
        while place < len(hashes) and hashes[place] == wanted:
            row = int.from_bytes(self._rows.read(8 * (first + place), 8), "little")
            known, path = _parted(self._records.read(row), self.base)
            if known == name:
                return path
            place += 1
        raise KeyError(name)

    def __setitem__(self, name: str, path: Path) -> None:
        self._more[name] = path

    def __delitem__(self, name: str) -> None:
        del self._more[name]

    def __iter__(self) -> Iterator[str]:
        for row in sorted(self._rows.values):
            yield _parted(self._records[row], self.base)[0]
        yield from self._more

    def __len__(self) -> int:
        return len(self._rows) + len(self._more)
