"""Examples in columns: written one after another, read by number without the others being in memory.

An example is one string of bytes, so that a random draw is one read: a head with flags, number of images and bytes of
key, sentence and images' names; then these, then the rest in JSON.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from vlcli.data.columns.cells import UnwritableError, dumps, loads
from vlcli.data.columns.strings import Mapped, Strings, StringsWriter
from vlcli.data.sample import Example

# Examples that a process keeps, so that a batch builds each once.
_HELD = 1024
# Examples read before the pages are given back (see `vlcli.data.columns.strings.Mapped.release`).
_READS = 4096
_RECORDS = "examples"
_NO_TEXT, _KEY_IS_TEXT_KEY, _HAS_REST = 1, 2, 4
_MOST_IMAGES = 255
_HEAD = struct.Struct("<BBIII")


def _record_of(example: Example) -> bytes:
    key, text, images = example.key, example.text, example.images
    if type(key) is not str or len(images) > _MOST_IMAGES or (text is not None and type(text) is not str):
        raise UnwritableError(f"the example {key!r}")
    names = "\0".join(images)
    if names.count("\0") != max(len(images) - 1, 0):
        raise UnwritableError("an image id with a zero byte")
    other_key = "" if example.text_key == key else example.text_key
    fields = {"k": other_key, "t": example.targets, "c": example.choices}
    rest = {name: value for name, value in fields.items() if value}
    flags = (_NO_TEXT if text is None else 0) | (_HAS_REST if rest else 0)
    flags |= _KEY_IS_TEXT_KEY if example.text_key and not other_key else 0
    parts = [part.encode("utf-8", "surrogatepass") for part in (key, text or "", names)]
    return b"".join((_HEAD.pack(flags, len(images), *map(len, parts)), *parts, dumps(rest) if rest else b""))


def _example_of(record: bytes) -> Example:
    flags, count, first, second, third = _HEAD.unpack_from(record)
    first += _HEAD.size
    second += first
    third += second
    key = _text(record[_HEAD.size : first])
    text = None if flags & _NO_TEXT else _text(record[first:second])
    images = _text(record[second:third]).split("\0") if count else []
    text_key = key if flags & _KEY_IS_TEXT_KEY else ""
    if not flags & _HAS_REST:
        return Example(key, text, images, text_key)
    rest = loads(record[third:])
    return Example(key, text, images, rest.get("k", text_key), rest.get("t", {}), rest.get("c", []))


def _text(content: bytes) -> str:
    return content.decode() if content.isascii() else content.decode("utf-8", "surrogatepass")


class ExamplesWriter(AbstractContextManager["ExamplesWriter"]):
    """Writes examples into the columns of a folder that exists and is empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._flags, self._images = bytearray(), bytearray()
        self._records = StringsWriter(folder, _RECORDS)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._records.__exit__(kind, *rest)
        if kind is None:
            (self.folder / "flags").write_bytes(self._flags)
            (self.folder / "image_counts").write_bytes(self._images)

    def append(self, example: Example) -> None:
        record = _record_of(example)
        self._records.append(record)
        self._flags.append(record[0])
        self._images.append(record[1])
        if not self.count & 0xFFFF:
            self._records.settle()

    @property
    def count(self) -> int:
        return len(self._flags)


class Examples(Sequence[Example]):
    """A sequence of examples that compares as a list does; a slice is a list. Subclasses define :meth:`at`."""

    def at(self, index: int) -> Example:
        """Return one example; the number may be negative. Raises IndexError: there is none."""
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self.at(row) for row in range(*index.indices(len(self)))]
        return self.at(index)

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


class ColumnExamples(Examples):
    """The examples of a folder that :class:`ExamplesWriter` filled, each made on demand.

    Args:
        chosen: rows of the columns, in the examples' order; None: those of the file ``rows`` in the folder, else all.
    """

    def __init__(self, folder: Path, chosen: NDArray[np.int64] | None = None) -> None:
        self.folder, self._chosen = folder, chosen
        self._records = Strings(folder, _RECORDS)
        self._flags, self._counts = Mapped(folder / "flags", "B"), Mapped(folder / "image_counts", "B")
        stored = Mapped(folder / "rows", "q") if (folder / "rows").is_file() else None
        self._columns = [column for column in (self._records, self._flags, self._counts, stored) if column is not None]
        self.rows: Any = chosen if chosen is not None else None if stored is None else stored.values
        self._length = len(self._flags) if self.rows is None else len(self.rows)
        self._held: dict[int, Example] = {}
        self._reads = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnExamples, (self.folder, self._chosen)  # a spawned process maps the folder anew

    def __len__(self) -> int:
        return self._length

    def at(self, index: int) -> Example:
        held = self._held.get(index)
        return self.together([index])[0] if held is None else held

    def together(self, indices: Sequence[int]) -> list[Example]:
        """Return the examples of these numbers, read in one go, and keep them for the next calls of :meth:`at`."""
        held = {} if len(self._held) + len(indices) > _HELD else self._held
        wanted = [index for index in dict.fromkeys(indices) if index not in held]
        records = self._records.read_many([self.row(index) for index in wanted])
        held.update(zip(wanted, map(_example_of, records), strict=True))
        self._held = held
        self._count_read(len(wanted))
        return [held[index] for index in indices]

    def __iter__(self) -> Iterator[Example]:
        for index in range(self._length):
            yield _example_of(self._records[self.row(index)])
            self._count_read()

    def row(self, index: int) -> int:
        index = range(self._length)[index]
        return index if self.rows is None else int(self.rows[index])

    def texts(self) -> Iterator[str | None]:
        """Yield the sentence of every row of the columns, chosen or not."""
        for row in range(len(self._flags)):
            record = self._records[row]
            flags, _, first, second, _ = _HEAD.unpack_from(record)
            start = _HEAD.size + first
            yield None if flags & _NO_TEXT else _text(record[start : start + second])
            self._count_read()

    def where(self, kept: NDArray[np.int64]) -> ColumnExamples:
        return ColumnExamples(self.folder, kept if self.rows is None else np.asarray(self.rows)[kept])

    def image_names(self, index: int) -> list[str]:
        """Return the images of an example without decoding its other fields."""
        row = self.row(index)
        self._count_read()
        record = self._records[row]
        _, count, first, second, third = _HEAD.unpack_from(record)
        start = _HEAD.size + first + second
        return _text(record[start : start + third]).split("\0") if count else []

    def column(self, name: str) -> NDArray[np.uint8]:
        """Return ``flags`` or ``image_counts`` of each example (N,)."""
        values = (self._flags if name == "flags" else self._counts).array()
        return values if self.rows is None else values[np.asarray(self.rows)]

    def release(self) -> None:
        for column in self._columns:
            column.release()

    def _count_read(self, count: int = 1) -> None:
        self._reads += count
        if self._reads >= _READS:
            self._reads = 0
            self.release()


class Joined(Examples):
    """Several sequences of examples as one."""

    def __init__(self, parts: Sequence[Sequence[Example]]) -> None:
        self.parts = list(parts)
        self.starts = [0, *accumulate(map(len, self.parts))]

    def __len__(self) -> int:
        return self.starts[-1]

    def at(self, index: int) -> Example:
        index = range(len(self))[index]
        number = bisect_right(self.starts, index) - 1
        return self.parts[number][index - self.starts[number]]

    def __iter__(self) -> Iterator[Example]:
        return chain.from_iterable(self.parts)


def joined(parts: Sequence[Sequence[Example]]) -> Sequence[Example]:
    """Join sequences: a list where all are lists, the columns alone where they are the only ones."""
    if not any(isinstance(part, ColumnExamples) for part in parts):
        return list(chain.from_iterable(parts))
    return parts[0] if len(parts) == 1 else Joined(parts)


def image_counts(examples: Sequence[Example]) -> NDArray[np.int64]:
    """Return the number of images of each example (N,)."""
    if isinstance(examples, ColumnExamples):
        return examples.column("image_counts").astype(np.int64)
    if isinstance(examples, Joined):
        return np.concatenate([image_counts(part) for part in examples.parts])
    return np.fromiter((len(example.images) for example in examples), np.int64, len(examples))


def without_text(examples: Sequence[Example]) -> list[int]:
    """Return the numbers of the examples that have no sentence."""
    if isinstance(examples, ColumnExamples):
        return np.flatnonzero(examples.column("flags") & _NO_TEXT).tolist()
    return [number for number, example in enumerate(examples) if example.text is None]
