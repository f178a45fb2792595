"""File names made of a row's columns: ``dev-{identifier}-0.png``, ``COCO_train2014_{image_id:012}.jpg``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vlcli.errors import DataError, shown

_FIELD = re.compile(r"\{([^{}:]+)(?::0?([0-9]{1,3}))?\}")


def is_template(name: str) -> bool:
    """Return whether the name of a column is a template instead."""
    return _FIELD.search(name) is not None


def fields_of(name: str) -> list[str]:
    """Return the columns that a template uses; the name itself where it is none."""
    return [field[1] for field in _FIELD.finditer(name)] or [name]


def filled(template: str, row: Mapping[str, Any], where: str) -> str:
    """Return the file name of a row.

    Args:
        template: text with ``{column}``, or ``{column:012}`` for a number with zeros in front up to that many digits.
        row: column -> cell.
        where: the row's place, for messages.

    Raises:
        DataError: a column is not there, is empty, or holds neither text nor a whole number.
    """

    def value(field: re.Match[str]) -> str:
        column, cell = field[1], row.get(field[1])
        if cell is None or cell == "":
            what = f"The column {column!r}, of which the name of a picture is made, has no value."
            got = ", ".join(map(str, row)) if column not in row else "an empty cell"
            raise DataError(what, where=where, got=got, expected=f"a value for {template}")
        if isinstance(cell, bool) or not isinstance(cell, str | int):
            got, expected = shown(cell), "text or a whole number"
            raise DataError(f"The column {column!r} makes no file name.", where=where, got=got, expected=expected)
        return str(cell).zfill(int(field[2] or 0))

    return _FIELD.sub(value, template)
