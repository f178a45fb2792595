"""Decides what the cells of a column are, and reads a cell: names, labels, boxes, answers, names of files."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from vlcli.data.checks import sentence
from vlcli.data.files import is_picture_file, parsed, read_text
from vlcli.data.readers.box_columns import Row
from vlcli.data.readers.vqa import soft_scores
from vlcli.data.recognition.values import is_box
from vlcli.errors import DataError, shown
from vlcli.images.boxes import BoxList
from vlcli.metrics.vqa import plain_form, table_form
from vlcli.plain import as_list

TYPES = ("number", "text", "list")
# Columns of classes or answers
ROLES = ("label", "answers", "box_labels")
# Text that is a number; `007`, `1e3`, `NA`, `null` and ids of twenty digits are none.
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?")
_SPLITS = ("train", "training", "trainval", "val", "valid", "validation", "dev", "eval", "test", "testing")
_SPLIT = re.compile(rf"(?<![A-Za-z])({'|'.join(_SPLITS)})(?![A-Za-z])", re.IGNORECASE)


@dataclass(frozen=True)
class ColumnType:
    """Type of the cells of a column."""

    number: bool  # values are numbers (1, 1.0 and "1" are equal), else text
    listed: bool = False  # cells that a file writes as text are JSON lists or objects

    def __str__(self) -> str:
        return ("lists of " if self.listed else "") + ("numbers" if self.number else "text")

    def value(self, cell: Any) -> Any:
        """Convert a cell, or the values in it, to this type. Raises ValueError: it has another."""
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
            if not _is_number(word):
                raise ValueError(word)
            word = float(word) if "." in word else int(word)
        if isinstance(word, bool):
            return str(word).lower()
        if isinstance(word, float) and word.is_integer() and abs(word) < 2**53:
            word = int(word)
        word = word.strip() if isinstance(word, str) else word  # blanks at the end of a cell are no other class
        return word if self.number or not isinstance(word, int | float) else str(word)


def decide(cells: Iterable[Any], as_text: bool) -> ColumnType | None:
    """Return the type of a column: numbers or lists if all filled cells are, else text; None: no cell is filled.

    Args:
        as_text: whether the file writes every cell as text (CSV), or has lists of its own (JSON).
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
    """Yield the files of other splits: those whose paths differ in the name of the split alone."""
    inner = str(file.relative_to(root)) if file.is_relative_to(root) else ""
    if hit := _SPLIT.search(inner):
        others = (root / _SPLIT.sub(name.title() if hit[0].istitle() else name, inner) for name in _SPLITS)
        yield from (other for other in others if other != file and other.is_file())


def check_types(types: dict[str, str]) -> None:
    """Check the option ``types``. Raises DataError: a role or a type is unknown."""
    for role, kind in types.items():
        if role not in ROLES or kind not in TYPES:
            got, expected = shown(f"{role}: {kind}"), f"{', '.join(ROLES)}: one of {', '.join(TYPES)}"
            raise DataError("A column's type is unknown.", where="types", got=got, expected=expected)


def decisions(reader: Any) -> list[str]:
    """Return lines on the types of a table's columns; none of other readers."""
    return list(reader.decisions()) if hasattr(reader, "decisions") else []


def _is_number(word: Any) -> bool:
    if isinstance(word, str):
        return _NUMBER.fullmatch(word.strip()) is not None
    return isinstance(word, int | float) and not isinstance(word, bool)


def _words(cell: Any) -> list[Any]:
    several = isinstance(cell, list) or (isinstance(cell, dict) and "answer" not in cell)
    items = cell if several else [cell]
    return [item["answer"] if isinstance(item, dict) and "answer" in item else item for item in items]


def _structure(cell: Any) -> list[Any] | dict[str, Any] | None:
    content = parsed(cell) if isinstance(cell, str) and cell.lstrip()[:1] in ("[", "{") else None
    return content if isinstance(content, list | dict) else None


def word(cell: Any, where: str, column: str) -> str:
    """Check a name or an id: text, or a whole number."""
    return str(cell) if type(cell) is int else sentence(cell, where, column)


def label(cell: Any, where: str, column: str) -> str | int | float:
    """Check a class: a word or a finite number; true and false are 1 and 0."""
    if isinstance(cell, bool):
        return int(cell)
    if isinstance(cell, str) or (isinstance(cell, int | float) and abs(cell) < 2**63):
        return cell
    what, expected = f"The field {column!r} is no label.", "a word or a finite number"
    raise DataError(what, where=where, got=shown(cell), expected=expected)


def box(cell: Any, where: str) -> list[float]:
    """Check one box: x1, y1, x2, y2 in pixels, with an area."""
    numbers = cell[0] if isinstance(cell, list) and len(cell) == 1 else cell
    if not is_box(numbers) or not all(abs(number) < 2**63 for number in numbers):
        expected = "[x1, y1, x2, y2] in pixels"
        raise DataError("The box is not understood.", where=where, got=shown(cell), expected=expected)
    x1, y1, x2, y2 = map(float, numbers)
    if x2 <= x1 or y2 <= y1:
        hint = "boxes written as x, y, width, height must become corners: x2 = x + width, y2 = y + height"
        expected = "[x1, y1, x2, y2] with x1 < x2 and y1 < y2"
        raise DataError("The box has no area.", where=where, got=shown(cell), expected=expected, hint=hint)
    return [x1, y1, x2, y2]


def box_list(boxes: Any, labels: list[Any], where: str, known: list[str]) -> BoxList:
    """Return boxes (x1, y1, x2, y2 in pixels) with their classes, numbered by ``known`` words unless that is empty."""
    try:
        array = np.array(boxes, np.float32).reshape(-1, 4)
    except (ValueError, TypeError, OverflowError):
        what, expected = "The boxes are not understood.", "[[x1, y1, x2, y2], ...]"
        raise DataError(what, where=where, got=shown(boxes), expected=expected) from None
    if labels and len(labels) != len(array):
        raise DataError("Boxes and their labels differ in number.", where=where, got=f"{len(array)} and {len(labels)}")
    try:
        numbers = [known.index(str(item)) if known else int(item) for item in labels]
        return BoxList(array, classes=np.array(numbers, np.int64) if labels else None)
    except (ValueError, TypeError, OverflowError):
        raise DataError("The labels of the boxes are not understood.", where=where, got=shown(labels)) from None
    except DataError as error:
        raise DataError(error.what, where=where, got=error.got, expected=error.expected) from None


# Target of answers in other languages than English, whose spelling stays
PLAIN = {"answer_form": "plain"}


def answers(cell: Any, where: str, english: bool = True) -> dict[str, Any]:
    """Return the targets of a cell: one answer, a list of people's answers, or an object answer -> score."""
    form = table_form if english else plain_form
    if isinstance(cell, dict) and all(isinstance(score, int | float) and abs(score) < 2**63 for score in cell.values()):
        scores: dict[str, float] = {}
        for answer, score in cell.items():  # of two answers that are spelt alike, the higher score
            spelt = form(str(answer))
            scores[spelt] = max(float(score), scores.get(spelt, 0.0))
        return {"answers": scores}
    if not isinstance(cell, list | str | int | float):
        expected = "{answer: score}, a list, or one answer"
        raise DataError("The answers are not understood.", where=where, got=shown(cell), expected=expected)
    words = list(map(str, _words(as_list(cell))))
    forms = list(map(form, words))
    scores = {forms[0]: 1.0} if len(forms) == 1 else soft_scores(forms)  # people's answers by VQA's rule
    return {"answers": scores, **({"raw_answers": words} if english else PLAIN)}


def choices(items: list[Any], correct: Any, where: str) -> dict[str, Any]:
    """Return the targets of a question with choices: ``choices``, and of a known answer ``choice`` and ``answers``.

    Args:
        correct: the right choice, its place from 0, or its letter from A; None: unknown.
    """
    words = [str(item) for item in items]
    if len(words) < 2:
        raise DataError("The question has no choices.", where=where, got=shown(items), expected="two or more")
    if correct is None:
        return {"choices": words}
    word = str(correct)
    if word not in words:
        index = int(word) if word.isdecimal() else LETTERS.find(word.upper()) if len(word) == 1 else -1
        word = words[index] if 0 <= index < len(words) else ""
    if not word:
        expected = f"0 to {len(words) - 1}, A to {LETTERS[len(words) - 1]}, or one of {', '.join(words)}"
        raise DataError("The correct choice is not a choice.", where=where, got=shown(correct), expected=expected)
    return {"choices": words, "choice": word, "answers": {table_form(word): 1.0}}


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
UNKNOWN = -1
_FLAGS = {"1": 1, "1.0": 1, "true": 1, "yes": 1, "0": 0, "0.0": 0, "false": 0, "no": 0, "-1": UNKNOWN, "-1.0": UNKNOWN}


class SeveralLabels:
    """Reads the classes of a row, by their names.

    Args:
        columns: a column of flags for each class (0 or 1, false or true; empty: unknown; -1: unknown if any cell is 0,
            else 0), or a single column of names.
        names: in the order of their numbers; empty: the columns, or all names that occur, sorted.
        separator: between names in a cell, unless it holds a JSON list; an empty cell has no classes.
        rows: all rows, for the names that occur and the meaning of -1.
    """

    def __init__(self, columns: list[str], names: list[str], separator: str, rows: Iterable[Row]) -> None:
        self.columns, self.separator, self.minus = columns, separator, UNKNOWN
        self.names = names or columns
        if len(columns) > 1:
            zero = any(_FLAGS.get(str(row.get(column)).lower()) == 0 for _, row in rows for column in columns)
            self.minus = UNKNOWN if zero else 0
        elif not names:
            self.names = sorted({name for _, row in rows for name in self._words(row)})

    def of(self, row: dict[str, Any], where: str) -> dict[str, list[str]]:
        """Return the targets of a row: ``labels``, and ``unknown_labels`` of missing flags."""
        if len(self.columns) == 1:
            words = self._words(row)
            if unknown := [word for word in words if word not in self.names]:
                expected = ", ".join(self.names[:20])
                raise DataError("The label is unknown.", where=where, got=unknown[0], expected=expected)
            return {"labels": [name for name in self.names if name in words]}
        flags = [self._flag(row.get(column), where, column) for column in self.columns]
        labels = [name for name, flag in zip(self.names, flags, strict=True) if flag == 1]
        unknown = [name for name, flag in zip(self.names, flags, strict=True) if flag == UNKNOWN]
        return {"labels": labels} | ({"unknown_labels": unknown} if unknown else {})

    def _words(self, row: dict[str, Any]) -> set[str]:
        cell = row.get(self.columns[0])
        if isinstance(cell, str):
            cell = items if isinstance(items := parsed(cell), list) else cell.split(self.separator)
        return {word for item in as_list(cell) if item is not None and (word := str(item).strip())}

    def _flag(self, cell: Any, where: str, column: str) -> int:
        if cell is None:
            return UNKNOWN
        if (flag := _FLAGS.get(str(cell).strip().lower())) is None:
            what, expected = f"The field {column!r} does not say yes or no.", "0 or 1, false or true; empty: unknown"
            raise DataError(what, where=where, got=shown(cell), expected=expected)
        return self.minus if flag < 0 else flag


_FIELD = re.compile(r"\{([^{}:]+)(?::0?([0-9]{1,3}))?\}")


def is_template(name: str) -> bool:
    """Return whether a column's name is a template such as ``{id}.jpg``."""
    return _FIELD.search(name) is not None


def fields_of(name: str) -> list[str]:
    """Return the columns of a template; the name itself where it is none."""
    return [field[1] for field in _FIELD.finditer(name)] or [name]


def filled(template: str, row: Mapping[str, Any], where: str) -> str:
    """Return the file name of a row.

    Args:
        template: text with ``{column}``, or ``{column:012}`` for a number of twelve digits; before a template's own
            ending, a cell loses that of a picture.
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
        word = str(cell).zfill(int(field[2] or 0))
        return str(PurePosixPath(word).with_suffix("")) if ends and is_picture_file(word) else word

    ends = is_picture_file(template)
    return _FIELD.sub(value, template)


def class_names_of(file: Path) -> tuple[int, list[str]]:
    """Return the number of the first class (0 or 1) and the names in a file of a class a line.

    Lines may be numbered from 0 or 1, before the name (CUB-200) or behind it (``/a/abbey 0``).
    """
    first, names = 0, list(filter(None, map(str.strip, read_text(file).splitlines())))
    before = [line.partition(" ")[::2] for line in names]
    behind = [line.rpartition(" ")[::-2] for line in names]
    for pairs, start in product((before, behind), (0, 1)):
        if all(number == str(start + row) and name for row, (number, name) in enumerate(pairs)):
            first, names = start, [name.strip() for _, name in pairs]
            break
    if not names or len(set(names)) < len(names):
        got = next((name for name in names if names.count(name) > 1), "no name")
        raise DataError("This is no list of classes.", where=str(file), got=got, expected="a different name a line")
    return first, names
