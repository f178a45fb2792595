"""A reader's examples on their way into columns: streamed where the reader can, chosen where a recipe says ``take``."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vlcli.data.columns.table import ColumnExamples, ExamplesWriter
from vlcli.data.take import select_rows
from vlcli.data.texts import check_texts
from vlcli.data.unique import check_keys

if TYPE_CHECKING:
    from vlcli.data.columns.places import PlacesWriter
    from vlcli.data.sample import Example


def write_examples(reader: Any, writer: ExamplesWriter, places: PlacesWriter) -> None:
    """Read every example of a reader into columns.

    Args:
        reader: a :class:`vlcli.data.reader.Reader`.
        writer: takes the examples: the first ``limit``, or all where ``take`` will choose of them.
        places: takes the pictures' files.

    Raises:
        DataError: a file is malformed, or nothing is left.
        UnwritableError: an example cannot be written.
    """
    most = reader.limit if reader.take is None else None
    where, count, hashes = reader._where(), 0, array("q")
    with _noting(reader, places), reader._making_sense():
        for count, example in enumerate(map(reader.with_ids, _streamed(reader)), 1):
            hashes.append(hash(example.key))
            if most is None or count <= most:
                if reader.take is None:
                    check_texts((example,), where)
                writer.append(example)
    if not writer.count:
        raise reader._empty(count)
    check_keys(reader, hashes, lambda row: next(islice(_streamed(reader), row, None)))


def choose_rows(reader: Any, folder: Path) -> NDArray[np.int64] | None:
    """The examples that ``take`` and ``limit`` choose of those written to ``folder``; None for all.

    Raises:
        DataError: ``take`` is not understood, or nothing is left.
    """
    if reader.take is None:
        return None
    written = ColumnExamples(folder)
    rows = select_rows(written, reader.take, reader.root)[: reader.limit]
    if not rows:
        raise reader._empty(len(written))
    check_texts((written[row] for row in rows), reader._where())
    return np.array(rows, np.int64)


def _streamed(reader: Any) -> Iterator[Example]:
    """From ``stream``, unless a subclass of the class that defines it has another ``read``."""
    streams, reads = (next(one for one in type(reader).__mro__ if name in vars(one)) for name in ("stream", "read"))
    return reader.stream() if issubclass(streams, reads) else iter(reader.read())


@contextmanager
def _noting(reader: Any, places: PlacesWriter) -> Iterator[None]:
    """Pictures are noted in columns, not in memory."""
    reader._places = places
    try:
        yield
    finally:
        reader._places = None
    for name, path in reader._paths.items():  # of readers that note them in the dictionary themselves
        places.note(name, str(path))
