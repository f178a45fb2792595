"""Paths of pictures by image id in columns: what ``Reader.picture`` notes, for any number of pictures.

Paths lie under the image folder where they can. Ids are found by a sorted hash of 64 bits and then compared.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager
from hashlib import blake2b
from pathlib import Path

import numpy as np

from vlcli.data.columns.strings import Mapped, Strings, StringsWriter
from vlcli.data.files import prefix
from vlcli.images.boxes import image_id

_RECENT = 4096
# Hashes between two that are in memory.
_BLOCK = 512
_SEPARATOR = b"\0"
Conflict = Callable[[str, Path, Path], Exception]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(_bytes(name), digest_size=8).digest(), "little")


class PicturePathsWriter(AbstractContextManager["PicturePathsWriter"]):
    """Writes the paths of a reader's pictures as they come; repeated ids are sorted out at the end.

    Args:
        base: the reader's image folder.
        conflict: makes the error for an id with two files, of the id and both paths.
    """

    def __init__(self, folder: Path, base: Path, conflict: Conflict) -> None:
        self.folder, self.base, self._conflict = folder, base, conflict
        self._prefix = prefix(str(base))
        self._hashes: array[int] = array("Q")
        self._recent: dict[str, str] = {}
        self._writer = StringsWriter(folder, "places")

    def note(self, name: str, path: str) -> None:
        if self._recent.get(name) == path:
            return
        if len(self._recent) >= _RECENT:
            self._recent.clear()
            self._writer.settle()
        self._recent[name] = path
        record = _bytes(path.removeprefix(self._prefix))
        self._writer.append(record if image_id(path) == name else record + _SEPARATOR + _bytes(name))
        self._hashes.append(_hash(name))

    def _write_hashes(self) -> None:
        hashes = np.array(self._hashes, np.uint64)
        order = np.argsort(hashes, kind="stable")
        kept = np.ones(len(order), bool)
        again = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]]) + 1
        strings = Strings(self.folder, "places")
        for row in again.tolist():
            kept[row] = self._is_new(strings, hashes, order, row)
        rows = order[kept]
        columns = {"hashes": hashes[rows], "fence": hashes[rows][::_BLOCK], "rows": rows.astype(np.int64)}
        for name, values in columns.items():
            (self.folder / f"places.{name}").write_bytes(values.tobytes())

    def _is_new(self, strings: Strings, hashes: np.ndarray, order: np.ndarray, row: int) -> bool:
        name, path = _name_and_path(strings[int(order[row])], self.base)
        first = int(np.searchsorted(hashes, hashes[order[row]], sorter=order))
        earlier = (_name_and_path(strings[other], self.base) for other in order[first:row].tolist())
        noted = next((its_path for known, its_path in earlier if known == name), None)
        if noted is not None and noted != path:
            raise self._conflict(name, noted, path)
        return noted is None

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._writer.__exit__(kind, *rest)
        if kind is None:
            self._write_hashes()


def _name_and_path(record: bytes, base: Path) -> tuple[str, Path]:
    path, separator, name = map(_text, record.partition(_SEPARATOR))
    return name if separator else image_id(path), base / path


class PicturePaths(MutableMapping[str, Path]):
    """Paths by image id, read from a folder of columns, under the image folder ``base``; new ones stay in memory."""

    def __init__(self, folder: Path, base: Path) -> None:
        self.base, self._more = Path(os.path.normpath(base)), dict[str, Path]()
        self._hashes, self._rows = Mapped(folder / "places.hashes", "Q"), Mapped(folder / "places.rows", "q")
        self._fence = array("Q", (folder / "places.fence").read_bytes())
        self._records = Strings(folder, "places")

    def __getitem__(self, name: str) -> Path:
        if name in self._more:
            return self._more[name]
        wanted = _hash(name)
        first = max(bisect_left(self._fence, wanted) - 1, 0) * _BLOCK
        hashes = array("Q", self._hashes.read(8 * first, 16 * _BLOCK))
        for number in range(bisect_left(hashes, wanted), bisect_right(hashes, wanted)):
            row = int.from_bytes(self._rows.read(8 * (first + number), 8), "little")
            known, path = _name_and_path(self._records.read_many([row])[0], self.base)
            if known == name:
                return path
        raise KeyError(name)

    def __setitem__(self, name: str, path: Path) -> None:
        self._more[name] = path

    def __delitem__(self, name: str) -> None:
        del self._more[name]

    def __iter__(self) -> Iterator[str]:
        for row in sorted(self._rows.values):
            yield _name_and_path(self._records[row], self.base)[0]
        yield from self._more

    def __len__(self) -> int:
        return len(self._rows) + len(self._more)
