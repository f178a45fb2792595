"""Examples in columns: written one after another, read by number without the others being in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from vlcli.data.columns.cells import UnwritableError, dumps, loads
from vlcli.data.columns.strings import Mapped, Strings, StringsWriter, write_numbers
from vlcli.data.sample import Example

_NO_TEXT, _KEY_IS_TEXT_KEY, _HAS_REST = 1, 2, 4
_MOST_IMAGES = 255
_HELD = 1024
"""Examples that a process keeps, so that a batch builds each once."""
_READS = 4096
"""Examples read before the pages are given back (see :meth:`vlcli.data.columns.strings.Mapped.release`)."""
STRINGS = ("keys", "texts", "images", "rest")


class ExamplesWriter:
    """Writes examples into the columns of a folder.

    Args:
        folder: exists, and is empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self._flags, self._images = bytearray(), bytearray()
        self._stack = ExitStack()
        self._columns = [self._stack.enter_context(StringsWriter(folder, name)) for name in STRINGS]
        self._add_key, self._add_text, self._add_images, self._add_rest = (one.append for one in self._columns)

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
        key, text, images = example.key, example.text, example.images
        if type(key) is not str or len(images) > _MOST_IMAGES or (text is not None and type(text) is not str):
            raise UnwritableError(f"the example {key!r}")
        flags = 0 if text is not None else _NO_TEXT
        rest: dict[str, Any] = {}
        if example.text_key:
            if example.text_key == key:
                flags |= _KEY_IS_TEXT_KEY
            else:
                rest["k"] = example.text_key
        if example.targets:
            rest["t"] = example.targets
        if example.choices:
            rest["c"] = example.choices
        content = dumps(rest) if rest else b""
        flags |= _HAS_REST if rest else 0
        self._add_images(_names(images))
        self._add_key(key.encode("utf-8", "surrogatepass"))
        self._add_text(b"" if text is None else text.encode("utf-8", "surrogatepass"))
        self._add_rest(content)
        self._flags.append(flags)
        self._images.append(len(images))
        self.count += 1
        if not self.count & 0xFFFF:
            for column in self._columns:
                column.settle()


def _names(images: Sequence[str]) -> bytes:
    """Image ids as one string."""
    joined = "\0".join(images)
    if joined.count("\0") != max(len(images) - 1, 0):
        raise UnwritableError("an image id with a zero byte")
    return joined.encode("utf-8", "surrogatepass")


def _text(content: bytes) -> str:
    return content.decode() if content.isascii() else content.decode("utf-8", "surrogatepass")


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
        self._keys, self._texts, self._images, self._rest = (Strings(self.folder, name) for name in STRINGS)
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
            self._held.clear()
        made = self._held[index] = self._example(row, Strings.read)
        self._count_read()
        return made

    def __iter__(self) -> Iterator[Example]:
        for index in range(self._length):
            yield self._example(self.row(index), Strings.__getitem__)
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
            yield None if self._flags.values[row] & _NO_TEXT else _text(self._texts[row])
            self._count_read()

    def where(self, kept: NDArray[np.int64]) -> ColumnExamples:
        """Only the examples of these numbers."""
        rows = kept if self._rows is None else np.asarray(self._rows)[kept]
        return ColumnExamples(self.folder, rows)

    def image_names(self, index: int) -> list[str]:
        """Images of an example, without the rest of it."""
        row = self.row(index)
        self._count_read()
        return _text(self._images[row]).split("\0") if self._counts.values[row] else []

    def image_counts(self) -> NDArray[np.uint8]:
        """Number of images of each example (N,)."""
        counts = self._counts.array()
        return counts if self._rows is None else counts[np.asarray(self._rows)]

    def without_text(self) -> NDArray[np.int64]:
        """The numbers of the examples that have no sentence."""
        flags = self._flags.array()
        chosen = flags if self._rows is None else flags[np.asarray(self._rows)]
        return np.flatnonzero(chosen & _NO_TEXT)

    def release(self) -> None:
        """Give the pages that were read back to the system."""
        for column in (self._keys, self._texts, self._images, self._rest, self._flags, self._counts, self._chosen):
            if column is not None:
                column.release()

    def _count_read(self) -> None:
        self._reads += 1
        if self._reads >= _READS:
            self._reads = 0
            self.release()

    def _example(self, row: int, read: Callable[[Strings, int], bytes]) -> Example:
        flags, count = self._flags.values[row], self._counts.values[row]
        key = _text(read(self._keys, row))
        text = None if flags & _NO_TEXT else _text(read(self._texts, row))
        images = _text(read(self._images, row)).split("\0") if count else []
        text_key = key if flags & _KEY_IS_TEXT_KEY else ""
        if not flags & _HAS_REST:
            return Example(key, text, images, text_key)
        rest = loads(read(self._rest, row))
        return Example(key, text, images, rest.get("k", text_key), rest.get("t", {}), rest.get("c", []))
