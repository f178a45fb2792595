"""Decides what the cells of a column are: numbers, text or lists; one type for the whole data set, all splits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcli.errors import DataError, shown

TYPES = ("number", "text", "list")
ROLES = ("label", "answers", "box_labels")
"""The columns whose cells are classes or answers."""
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?")
"""A number as everybody writes it: ``007``, ``1e3``, ``NA``, ``null`` and ids of twenty digits are text."""
_SPLITS = ("train", "training", "trainval", "val", "valid", "validation", "dev", "eval", "test", "testing")
_SPLIT = re.compile(rf"(?<![A-Za-z])({'|'.join(_SPLITS)})(?![A-Za-z])")


@dataclass(frozen=True)
class ColumnType:
    """Type of the cells of a column.

    Attributes:
        number: whether every value is a number: 1, 1.0 and "1" are one; else each is the text that it is.
        listed: whether cells that a file writes as text are JSON lists or objects.
    """

    number: bool
    listed: bool = False

    def __str__(self) -> str:
        return ("lists of " if self.listed else "") + ("numbers" if self.number else "text")

    def value(self, cell: Any) -> Any:
        """Return the one form of a cell, or of the values in it.

        Raises:
            ValueError: it is not of this type.
        """
        if isinstance(cell, str) and self.listed and (cell := _structure(cell)) is None:
            raise ValueError
        if isinstance(cell, list):
            return [self._word(item) for item in cell]
        if isinstance(cell, dict):
            return {str(self._word(name)): score for name, score in cell.items()}
        return self._word(cell)

    def _word(self, word: Any) -> Any:
        if isinstance(word, dict) and "answer" in word:
            return {**word, "answer": self._word(word["answer"])}
        if isinstance(word, str) and self.number:
            if not _NUMBER.fullmatch(word.strip()):
                raise ValueError(word)
            word = float(word) if "." in word else int(word)
        if isinstance(word, bool):
            return str(word).lower()
        if isinstance(word, float) and word.is_integer() and abs(word) < 2**53:
            word = int(word)
        return word if self.number or not isinstance(word, int | float) else str(word)


def decide(cells: Iterable[Any], as_text: bool) -> ColumnType | None:
    """Return the type of a column: numbers or lists where all cells that hold anything are, else text.

    Args:
        as_text: whether the file writes every cell as text (CSV). Where it has types of its own (JSON), these say which
            cells are lists, and the type is that of the words in lists and outside.
    """
    filled, listed, numbers = False, False, True
    for cell in cells:
        inner = _structure(cell) if as_text and (listed or not filled) else None
        if listed and inner is None:
            return ColumnType(False)
        filled, listed = True, inner is not None
        numbers = numbers and all(map(_is_number, _words(inner if listed else cell)))
        if not numbers and not listed:
            return ColumnType(False)
    return ColumnType(numbers, listed) if filled else None


def other_splits(file: Path, root: Path) -> Iterator[Path]:
    """Yield the files of a data set's other splits: those whose path has another split's name in the same places."""
    inner = str(file.relative_to(root)) if file.is_relative_to(root) else ""
    for name in _SPLITS if _SPLIT.search(inner) else ():
        other = root / _SPLIT.sub(name, inner)
        if other != file and other.is_file():
            yield other


def check_types(types: dict[str, str]) -> None:
    """Refuse types that are none."""
    for role, kind in types.items():
        if role not in ROLES or kind not in TYPES:
            got, expected = shown(f"{role}: {kind}"), f"{', '.join(ROLES)}: one of {', '.join(TYPES)}"
            raise DataError("A column's type is unknown.", where="types", got=got, expected=expected)


def decisions(reader: Any) -> list[str]:
    """Return lines on what a reader of tables decided of its columns; none of other readers."""
    return list(reader.decisions()) if hasattr(reader, "decisions") else []


def _is_number(word: Any) -> bool:
    if isinstance(word, str):
        return _NUMBER.fullmatch(word.strip()) is not None
    return isinstance(word, int | float) and not isinstance(word, bool)


def _words(cell: Any) -> Iterator[Any]:
    if isinstance(cell, dict):
        yield from [cell["answer"]] if "answer" in cell else cell
    elif isinstance(cell, list):
        for item in cell:
            yield item["answer"] if isinstance(item, dict) and "answer" in item else item
    else:
        yield cell


def _structure(cell: Any) -> list[Any] | dict[str, Any] | None:
    try:
        content = json.loads(cell) if isinstance(cell, str) and cell.lstrip()[:1] in ("[", "{") else None
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, list | dict) else None
