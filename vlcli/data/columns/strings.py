"""Columns on the disk that processes read through memory maps: numbers of one type, and strings.

A column of N strings is two files: ``NAME.bytes``, all strings behind one another, and ``NAME.ends``, N + 1 numbers.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

_TWO = struct.Struct("<qq")
# Strings that a writer holds before it writes them.
_FLUSHED = 1 << 16


class Mapped:
    """A file of numbers of :mod:`struct`'s type ``code`` as a memory map, whose pages the machine's processes share."""

    def __init__(self, path: Path, code: str) -> None:
        self.path, self.code = path, code
        self._file = path.open("rb")
        self.descriptor = self._file.fileno()
        self.map: Any = mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
        self.values: memoryview[int] = memoryview(self.map).cast(code)  # type: ignore[call-overload,unused-ignore]

    def __len__(self) -> int:
        return len(self.values)

    def __reduce__(self) -> tuple[Any, ...]:
        return Mapped, (self.path, self.code)  # a spawned process maps the file anew

    def read(self, start: int, size: int) -> bytes:
        """Read ``size`` bytes from the file: each random read of the map adds 64 KB to this process's memory."""
        if hasattr(os, "pread"):
            return os.pread(self.descriptor, size, start)
        return bytes(self.map[start : start + size])  # Windows

    def array(self) -> np.ndarray:
        return np.frombuffer(self.map, np.dtype(self.code))

    def release(self) -> None:
        """Give the pages that were read back to the system's cache: random draws would make all of them ours."""
        if self.map and hasattr(mmap, "MADV_DONTNEED"):
            self.map.madvise(mmap.MADV_DONTNEED)


class Strings:
    """A column of byte strings, ``NAME.bytes`` and ``NAME.ends`` in ``folder``; items are read from the map."""

    def __init__(self, folder: Path, name: str) -> None:
        self.content, self.ends = Mapped(folder / f"{name}.bytes", "B"), Mapped(folder / f"{name}.ends", "q")

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, row: int) -> bytes:
        return bytes(self.content.map[self.ends.values[row] : self.ends.values[row + 1]])

    def read_many(self, rows: Sequence[int]) -> list[bytes]:
        """Read strings from the files: for reading at random (see :meth:`Mapped.read`)."""
        if not hasattr(os, "pread"):  # Windows
            return [self[row] for row in rows]
        pread, ends, content = os.pread, self.ends.descriptor, self.content.descriptor
        bounds = [_TWO.unpack(pread(ends, 16, 8 * row)) for row in rows]
        return [pread(content, stop - start, start) for start, stop in bounds]

    def release(self) -> None:
        self.content.release()
        self.ends.release()


class StringsWriter(AbstractContextManager["StringsWriter"]):
    """Writes a column of byte strings, one after another, into a folder that exists; :attr:`append` takes each."""

    def __init__(self, folder: Path, name: str) -> None:
        self._content = (folder / f"{name}.bytes").open("wb")
        self._ends = (folder / f"{name}.ends").open("wb")
        self._held: list[bytes] = []
        self.append, self._total = self._held.append, 0
        self._ends.write(bytes(8))

    def settle(self) -> None:
        """Write the strings held in memory, where they are many; called now and then."""
        if len(self._held) >= _FLUSHED:
            self._flush()

    def _flush(self) -> None:
        ends = np.cumsum([self._total, *map(len, self._held)], dtype="<i8")
        self._content.write(b"".join(self._held))
        self._ends.write(ends[1:].tobytes())
        self._total = int(ends[-1])
        self._held.clear()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        with self._content, self._ends:
            if kind is None:
                self._flush()
