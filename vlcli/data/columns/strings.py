"""Columns on the disk that processes read through memory maps: numbers of one type, and strings.

A column of N strings is two files: ``NAME.bytes``, all strings behind one another, and ``NAME.ends``, N + 1 numbers.
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

_TWO = struct.Struct("<qq")
_FLUSHED = 1 << 16
"""Strings that a writer holds before it writes them."""


class Mapped:
    """A file of numbers as a memory map: processes of one machine share its pages.

    Args:
        path: the file.
        code: the numbers' type, as :mod:`struct` calls it (``B``, ``Q``, ``q``, ``I``, ``H``, ``h``).
    """

    def __init__(self, path: Path, code: str) -> None:
        self.path, self.code = path, code
        self._file = path.open("rb")
        empty = not path.stat().st_size
        self.map: Any = b"" if empty else mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self.values: memoryview[int] = memoryview(self.map).cast(code)  # type: ignore[call-overload,unused-ignore]

    def __len__(self) -> int:
        return len(self.values)

    def __getstate__(self) -> tuple[Path, str]:
        """The file: a spawned process maps it anew."""
        return self.path, self.code

    def __setstate__(self, state: tuple[Path, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def read(self, start: int, size: int) -> bytes:
        """So many bytes, read without the map.

        A read of the map at a random place brings 64 KB around it into the memory that this process counts as its own;
        reading the file takes as long and brings nothing, and the system's cache of it serves all processes.
        """
        if not hasattr(os, "pread"):  # Windows
            found: bytes = self.map[start : start + size]
            return found
        return os.pread(self._file.fileno(), size, start)

    @property
    def descriptor(self) -> int:
        """Of the open file."""
        return self._file.fileno()

    def array(self) -> np.ndarray:
        """The numbers as an array on the map."""
        return np.frombuffer(self.map, np.dtype(self.code))

    def release(self) -> None:
        """Give the pages that were read back to the system, which keeps them in its cache: reading goes on as before.

        Without it a process that draws examples at random would in the end count every page as its own.
        """
        if self.map and hasattr(mmap, "MADV_DONTNEED"):
            self.map.madvise(mmap.MADV_DONTNEED)


class Strings:
    """A column of byte strings.

    Args:
        folder: where it lies.
        name: of the column.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.content, self.ends = Mapped(folder / f"{name}.bytes", "B"), Mapped(folder / f"{name}.ends", "q")

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, row: int) -> bytes:
        """A string on the map: for reading in order."""
        ends = self.ends.values
        found: bytes = self.content.map[ends[row] : ends[row + 1]]
        return found

    def read(self, row: int) -> bytes:
        """A string without the map: for reading at random (see :meth:`Mapped.read`)."""
        start, stop = _TWO.unpack(self.ends.read(8 * row, 16))
        return self.content.read(start, stop - start) if stop > start else b""

    def read_many(self, rows: Sequence[int]) -> list[bytes]:
        """What :meth:`read` gives for each of these rows, in half the time."""
        if not hasattr(os, "pread"):
            return [self.read(row) for row in rows]
        pread, ends, content = os.pread, self.ends.descriptor, self.content.descriptor
        places = [_TWO.unpack(pread(ends, 16, 8 * row)) for row in rows]
        return [pread(content, stop - start, start) for start, stop in places]

    def release(self) -> None:
        """See :meth:`Mapped.release`."""
        self.content.release()
        self.ends.release()


class StringsWriter:
    """Writes a column of byte strings, one after another.

    Args:
        folder: where it will lie; exists.
        name: of the column.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._content: BinaryIO = (folder / f"{name}.bytes").open("wb")
        self._ends: BinaryIO = (folder / f"{name}.ends").open("wb")
        self._held: list[bytes] = []
        self.append = self._held.append
        self._total = 0
        self._ends.write(bytes(8))

    def settle(self) -> None:
        """Write what is held, where it is much; called now and then."""
        if len(self._held) >= _FLUSHED:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        ends = np.cumsum([len(item) for item in self._held], dtype=np.int64) + self._total
        self._content.write(b"".join(self._held))
        self._ends.write(ends.astype("<i8").tobytes())
        self._total = int(ends[-1]) if len(ends) else self._total
        self._held.clear()

    def __enter__(self) -> StringsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        self._held.clear()
        self._content.close()
        self._ends.close()

    def close(self) -> None:
        """Write what is held, and close the files."""
        if not self._ends.closed:
            self.flush()
            self._content.close()
            self._ends.close()


def write_numbers(path: Path, values: np.ndarray | array[Any]) -> None:
    """A file of numbers that :class:`Mapped` reads."""
    with path.open("wb") as file:
        file.write(values.tobytes())
