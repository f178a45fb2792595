"""Examples in columns: written one after another, read by number without the others being in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from vlcli.data.columns.records import NO_TEXT, count_of, example_of, flags_of, images_of, record_of, text_of
from vlcli.data.columns.strings import Mapped, Strings, StringsWriter, write_numbers
from vlcli.data.sample import Example

_HELD = 1024
"""Examples that a process keeps, so that a batch builds each once."""
_READS = 4096
"""Examples read before the pages are given back (see :meth:`vlcli.data.columns.strings.Mapped.release`)."""
RECORDS = "examples"


class ExamplesWriter:
    """Writes examples into the columns of a folder.

    Args:
        folder: exists, and is empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self._flags, self._images = bytearray(), bytearray()
        self._stack = ExitStack()
        self._records = self._stack.enter_context(StringsWriter(folder, RECORDS))

    def __enter__(self) -> ExamplesWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)
        if error[0] is None:
            write_numbers(self.folder / "flags", np.frombuffer(self._flags, np.uint8))
            write_numbers(self.folder / "image_counts", np.frombuffer(self._images, np.uint8))

    def append(self, example: Example) -> None:
        """Write one.

        Raises:
            UnwritableError: something in it cannot be written.
        """
        record = record_of(example)
        self._records.append(record)
        self._flags.append(flags_of(record))
        self._images.append(count_of(record))
        self.count += 1
        if not self.count & 0xFFFF:
            self._records.settle()


class ColumnExamples(Sequence[Example]):
    """The examples of a folder of columns; each is made when it is asked for.

    Args:
        folder: that :class:`ExamplesWriter` filled.
        rows: which of them, in their order; None: those that ``rows`` in the folder lists, else all.
    """

    def __init__(self, folder: Path, rows: NDArray[np.int64] | None = None) -> None:
        self.folder, self._given = folder, rows
        self._open()

    def _open(self) -> None:
        self._records = Strings(self.folder, RECORDS)
        self._flags, self._counts = Mapped(self.folder / "flags", "B"), Mapped(self.folder / "image_counts", "B")
        chosen = Mapped(self.folder / "rows", "q") if (self.folder / "rows").is_file() else None
        self._chosen = chosen
        self._rows: Any = self._given if self._given is not None else None if chosen is None else chosen.values
        self._length = len(self._flags) if self._rows is None else len(self._rows)
        self._held: dict[int, Example] = {}
        self._reads = 0

    def __getstate__(self) -> dict[str, Any]:
        """The folder: a spawned process maps it anew."""
        return {"folder": self.folder, "_given": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._length))]
        held = self._held.get(index)
        if held is not None:
            return held
        row = self.row(index)
        if len(self._held) >= _HELD:
            self._held = {}
        made = self._held[index] = example_of(self._records.read(row))
        self._count_read()
        return made

    def together(self, indices: Sequence[int]) -> list[Example]:
        """The examples of these numbers, read in one go, and kept for whoever asks for one of them next."""
        held = self._held
        wanted = [index for index in dict.fromkeys(indices) if index not in held]
        if len(held) + len(wanted) > _HELD:
            held, wanted = {}, list(dict.fromkeys(indices))
        records = self._records.read_many([self.row(index) for index in wanted])
        held.update(zip(wanted, map(example_of, records), strict=True))
        self._held = held
        self._count_read(len(wanted))
        return [held[index] for index in indices]

    def __iter__(self) -> Iterator[Example]:
        for index in range(self._length):
            yield example_of(self._records[self.row(index)])
            self._count_read()

    def __eq__(self, other: object) -> bool:
        """As lists are compared."""
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def row(self, index: int) -> int:
        """The row of an example in the columns.

        Raises:
            IndexError: there is none.
        """
        if not -self._length <= index < self._length:
            raise IndexError(index)
        index = index + self._length if index < 0 else index
        return index if self._rows is None else int(self._rows[index])

    @property
    def rows(self) -> Any:
        """The rows in the columns, in the examples' order; None for all."""
        return self._rows

    def texts(self) -> Iterator[str | None]:
        """The sentence of every row of the columns, chosen or not."""
        for row in range(len(self._flags)):
            yield text_of(self._records[row])
            self._count_read()

    def where(self, kept: NDArray[np.int64]) -> ColumnExamples:
        """Only the examples of these numbers."""
        rows = kept if self._rows is None else np.asarray(self._rows)[kept]
        return ColumnExamples(self.folder, rows)

    def image_names(self, index: int) -> list[str]:
        """Images of an example, without the rest of it."""
        row = self.row(index)
        self._count_read()
        return images_of(self._records[row])

    def image_counts(self) -> NDArray[np.uint8]:
        """Number of images of each example (N,)."""
        counts = self._counts.array()
        return counts if self._rows is None else counts[np.asarray(self._rows)]

    def without_text(self) -> NDArray[np.int64]:
        """The numbers of the examples that have no sentence."""
        flags = self._flags.array()
        chosen = flags if self._rows is None else flags[np.asarray(self._rows)]
        return np.flatnonzero(chosen & NO_TEXT)

    def release(self) -> None:
        """Give the pages that were read back to the system."""
        for column in (self._records, self._flags, self._counts, self._chosen):
            if column is not None:
                column.release()

    def _count_read(self, count: int = 1) -> None:
        self._reads += count
        if self._reads >= _READS:
            self._reads = 0
            self.release()
