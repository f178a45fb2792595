"""Several labels of one row: a column for each class, or one column that holds the classes' names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vlcli.data.files import parsed
from vlcli.errors import DataError, shown
from vlcli.plain import as_list

UNKNOWN = -1
_FLAGS = {"1": 1, "1.0": 1, "true": 1, "yes": 1, "0": 0, "0.0": 0, "false": 0, "no": 0, "-1": UNKNOWN, "-1.0": UNKNOWN}


class SeveralLabels:
    """Reads which classes a row has, by their names.

    Args:
        columns: of flags (0 or 1, false or true; empty or -1: unknown), one a class; or a single one of names.
        names: the classes in the order of their numbers; None: the columns, or all names that occur, sorted.
        separator: between names in one cell; a cell may also hold a JSON list. An empty cell has none of the classes.
    """

    def __init__(self, columns: list[str], names: list[str] | None, separator: str) -> None:
        self.columns, self.separator = columns, separator
        self.of_names = len(columns) == 1
        self.fixed = bool(names) or not self.of_names
        self.names: list[str] = list(names or columns) if self.fixed else []

    def gather(self, rows: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Set ``names`` to the names that occur, where they are not fixed."""
        if not self.fixed:
            self.names = sorted({name for _, row in rows for name in self._words(row)})

    def of(self, row: dict[str, Any], where: str) -> dict[str, list[str]]:
        """Return the targets of a row: ``labels``, and ``unknown_labels`` where a flag is missing.

        Raises:
            DataError: a cell is no flag, or names a class that is not listed.
        """
        if self.of_names:
            words = self._words(row)
            if unknown := [word for word in words if word not in self.names]:
                expected = ", ".join(self.names[:20])
                raise DataError("The label is unknown.", where=where, got=unknown[0], expected=expected)
            return {"labels": [name for name in self.names if name in words]}
        flags = [_flag(row.get(column), where, column) for column in self.columns]
        having = {flag: [name for name, f in zip(self.names, flags, strict=True) if f == flag] for flag in (1, UNKNOWN)}
        return {"labels": having[1], **({"unknown_labels": having[UNKNOWN]} if having[UNKNOWN] else {})}

    def _words(self, row: dict[str, Any]) -> set[str]:
        cell = row.get(self.columns[0])
        if isinstance(cell, str):
            cell = items if isinstance(items := parsed(cell), list) else cell.split(self.separator)
        return {word for item in as_list(cell) if item is not None and (word := str(item).strip())}


def _flag(cell: Any, where: str, column: str) -> int:
    flag = UNKNOWN if cell is None else _FLAGS.get(str(cell).strip().lower())
    if flag is None:
        what, expected = f"The field {column!r} does not say yes or no.", "0 or 1, false or true; empty: unknown"
        raise DataError(what, where=where, got=shown(cell), expected=expected)
    return flag
