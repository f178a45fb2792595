"""Tables with several rows for each picture: a box a row, or a class a row."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vlcli.data.files import parsed
from vlcli.data.recognition.values import as_number
from vlcli.errors import DataError, shown
from vlcli.images.files import BadImageError, read_size
from vlcli.plain import as_list

BoxFormat = Literal["xyxy", "xywh", "cxcywh", "shares"]
"""torchvision's names: two corners; corner, width and height; centre, width and height. shares: corners from 0 to 1."""
Row = tuple[str, dict[str, Any]]
"""Place of a row (``FILE:line``), and column -> cell."""


def corners(row: dict[str, Any], columns: Sequence[str], form: BoxFormat, where: str) -> list[float] | None:
    """Return the box of a row as x1, y1, x2, y2 in pixels; None: its cells are empty.

    Args:
        columns: four, or one of lists of four numbers, which may be text.

    Raises:
        DataError: a cell is no number, or some are empty.
    """
    cells = [row.get(column) for column in columns]
    if len(columns) == 1 and cells[0] is not None:
        cells = as_list(parsed(cells[0]) if isinstance(cells[0], str) else cells[0])
    if all(cell is None for cell in cells):
        return None
    numbers = [number for number in map(as_number, cells) if number is not None]
    if len(numbers) != 4 or len(cells) != 4:
        expected = f"numbers of pixels in {', '.join(columns)}"
        raise DataError("The box is not understood.", where=where, got=shown(cells), expected=expected)
    x1, y1, x2, y2 = numbers
    if form == "cxcywh":
        x1, y1 = x1 - x2 / 2, y1 - y2 / 2
    return [x1, y1, x2, y2] if form in ("xyxy", "shares") else [x1, y1, x1 + x2, y1 + y2]


def sides_of(picture: Path) -> np.ndarray:
    """Return width, height, width, height of a picture: zeros where it cannot be read, which pixels report."""
    try:
        height, width = read_size(picture)
    except BadImageError:
        height = width = 0
    return np.array([width, height] * 2, np.float32)


def by_picture(
    rows: Iterable[Row],
    picture: Callable[[dict[str, Any]], Any],
    lists: Callable[[dict[str, Any], str], dict[str, Any]],
) -> Iterator[Row]:
    """Yield the first row of each picture, with the joined ``lists`` of its rows.

    Args:
        picture: gives the name of a row's picture.
        lists: gives column -> list for a row and its place.
    """
    merged: dict[Any, Row] = {}
    for where, row in rows:
        more = lists(row, where)
        _, first = merged.setdefault(picture(row), (where, row | {column: [] for column in more}))
        for column, items in more.items():
            first[column] += items
    yield from merged.values()
