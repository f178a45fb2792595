"""Tables with several rows for each picture: a box a row, or a class a row."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from vlcli.errors import DataError, shown

BoxFormat = Literal["xyxy", "xywh", "cxcywh"]
"""torchvision's names: two corners; corner, width and height; centre, width and height."""
Rows = Iterable[tuple[str, dict[str, Any]]]


def corners(row: dict[str, Any], columns: Sequence[str], form: BoxFormat, where: str) -> list[float] | None:
    """Return the box of a row as x1, y1, x2, y2 in pixels; None where its cells are empty.

    Args:
        columns: four, or one whose cells are lists of four numbers, which may be written as text.

    Raises:
        DataError: a cell is no number, or some are empty.
    """
    cells = [row.get(column) for column in columns]
    if len(columns) == 1 and cells[0] is not None:
        cells = _listed(cells[0])
    if all(cell is None for cell in cells):
        return None
    try:
        x1, y1, x2, y2 = (float(cell) for cell in cells)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        x1 = y1 = x2 = y2 = math.nan
    if not all(map(math.isfinite, (x1, y1, x2, y2))):
        expected = f"numbers of pixels in {', '.join(columns)}"
        raise DataError("The box is not understood.", where=where, got=shown(cells), expected=expected)
    if form == "cxcywh":
        x1, y1 = x1 - x2 / 2, y1 - y2 / 2
    return [x1, y1, x2, y2] if form == "xyxy" else [x1, y1, x1 + x2, y1 + y2]


def _listed(cell: Any) -> list[Any]:
    try:
        numbers = json.loads(cell) if isinstance(cell, str) else cell
    except ValueError:
        numbers = None
    return numbers if isinstance(numbers, list) else [cell]


def with_box(rows: Rows, columns: Sequence[str], form: BoxFormat, column: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield rows with their box in the column ``column``."""
    yield from ((where, row | {column: corners(row, columns, form, where)}) for where, row in rows)


def one_row_a_picture(
    rows: Rows, columns: Sequence[str], form: BoxFormat, into: tuple[str, str], picture: Callable[[dict[str, Any]], Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the first row of each picture, with the lists of the boxes and of the classes of all its rows.

    Args:
        columns: the four columns, or the one.
        into: column that gets the boxes, and the one that holds a class and gets all of them.
        picture: what names the picture of a row.
    """
    boxes_column, class_column = into
    merged: dict[Any, tuple[str, dict[str, Any]]] = {}
    for where, row in rows:
        _, first = merged.setdefault(picture(row), (where, row | {boxes_column: [], class_column: []}))
        box = corners(row, columns, form, where)
        if box is not None:
            first[boxes_column].append(box)
            first[class_column] += [] if row.get(class_column) is None else [row[class_column]]
    yield from merged.values()


def labels_a_picture(
    rows: Rows, column: str, named_by: Sequence[str], wanted: Callable[[dict[str, Any]], bool]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the first row of each picture, with the list of the labels of all its rows.

    Args:
        column: of the label; it gets the lists.
        named_by: the columns that name a picture.
        wanted: rows for which this is false are left out.
    """
    merged: dict[Any, tuple[str, dict[str, Any]]] = {}
    for where, row in rows:
        if wanted(row):
            name = tuple(str(row.get(one)) for one in named_by)
            _, first = merged.setdefault(name, (where, row | {column: []}))
            first[column] += [] if row.get(column) is None else [str(row[column])]
    yield from merged.values()
