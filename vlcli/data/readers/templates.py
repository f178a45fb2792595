"""File names made of a row's columns: ``dev-{identifier}-0.png``, ``COCO_train2014_{image_id:012}.jpg``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vlcli.errors import DataError, shown

_FIELD = re.compile(r"\{([^{}:]+)(?::0?([0-9]{1,3}))?\}")


def is_template(name: str) -> bool:
    """Whether the name of a column is a template instead."""
    return _FIELD.search(name) is not None


def fields_of(name: str) -> list[str]:
    """The columns that a template uses; the name itself where it is none."""
    return [found[1] for found in _FIELD.finditer(name)] or [name]


def filled(template: str, row: Mapping[str, Any], where: str) -> str:
    """The file name of a row.

    Args:
        template: text with ``{column}``, or ``{column:012}`` for a number with zeros in front up to that many digits.
        row: the values.
        where: the row's place, for messages.

    Raises:
        DataError: a column is not there, is empty, or holds neither text nor a whole number.
    """

    def value(found: re.Match[str]) -> str:
        given = row.get(found[1])
        if given is None or given == "":
            raise DataError(
                f"The column {found[1]!r}, of which the name of a picture is made, has no value.",
                where=where,
                got=", ".join(map(str, row)) if found[1] not in row else "an empty cell",
                expected=f"a value for {template}",
            )
        if isinstance(given, bool) or not isinstance(given, str | int):
            got, expected = shown(given), "text or a whole number"
            raise DataError(f"The column {found[1]!r} makes no file name.", where=where, got=got, expected=expected)
        return str(given).zfill(int(found[2] or 0))

    return _FIELD.sub(value, template)
