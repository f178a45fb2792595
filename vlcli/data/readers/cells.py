"""What one cell of a table of one's own may hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from vlcli.data.readers.vqa import soft_scores
from vlcli.data.texts import sentence
from vlcli.errors import DataError, shown
from vlcli.images.boxes import BoxList
from vlcli.metrics.vqa import plain_form, table_form
from vlcli.plain import as_list


def word(cell: Any, where: str, column: str) -> str:
    """Return a name or an id: text, or a whole number.

    Raises:
        DataError: anything else, or text that is none (see :func:`vlcli.data.texts.sentence`).
    """
    if isinstance(cell, int) and not isinstance(cell, bool):
        return str(cell)
    return sentence(cell, where, column)


def label(cell: Any, where: str, column: str) -> str | int | float:
    """Return a class: a word or a finite number; true and false are 1 and 0.

    Raises:
        DataError: anything else.
    """
    if isinstance(cell, bool):
        return int(cell)
    if isinstance(cell, str) or (isinstance(cell, int | float) and math.isfinite(cell) and abs(cell) < 2**63):
        return cell
    what, expected = f"The field {column!r} is no label.", "a word or a finite number"
    raise DataError(what, where=where, got=shown(cell), expected=expected)


def box(cell: Any, where: str) -> list[float]:
    """Return one box, x1 y1 x2 y2 in pixels.

    Raises:
        DataError: it is none, or its corners are out of order, as those of x, y, width and height often are.
    """
    numbers = cell[0] if isinstance(cell, list) and len(cell) == 1 else cell
    plain = isinstance(numbers, list) and len(numbers) == 4 and all(type(n) in (int, float) for n in numbers)
    if not plain or not all(map(math.isfinite, numbers)):
        expected = "[x1, y1, x2, y2] in pixels"
        raise DataError("The box is not understood.", where=where, got=shown(cell), expected=expected)
    x1, y1, x2, y2 = map(float, numbers)
    if x2 <= x1 or y2 <= y1:
        hint = "boxes written as x, y, width, height must become corners: x2 = x + width, y2 = y + height"
        expected = "[x1, y1, x2, y2] with x1 < x2 and y1 < y2"
        raise DataError("The box has no area.", where=where, got=shown(cell), expected=expected, hint=hint)
    return [x1, y1, x2, y2]


def box_list(boxes: Any, labels: list[Any], where: str, known: list[str]) -> BoxList:
    """Return boxes with their classes.

    Args:
        boxes: lists of four numbers in pixels.
        labels: of each box; none where classes are not given.
        where: the row.
        known: the words that classes are numbered by; empty where they are numbers.

    Raises:
        DataError: either is not understood, or they differ in number.
    """
    expected = "[[x1, y1, x2, y2], ...]"
    try:
        array = np.array(boxes, np.float32).reshape(-1, 4)
    except (ValueError, TypeError, OverflowError):
        raise DataError("The boxes are not understood.", where=where, got=shown(boxes), expected=expected) from None
    if labels and len(labels) != len(array):
        raise DataError("Boxes and their labels differ in number.", where=where, got=f"{len(array)} and {len(labels)}")
    number: Callable[[Any], int] = (lambda name: known.index(str(name))) if known else int
    try:
        classes = np.array([number(item) for item in labels], np.int64) if labels else None
        return BoxList(array, classes=classes)
    except (ValueError, TypeError, OverflowError):
        raise DataError("The labels of the boxes are not understood.", where=where, got=shown(labels)) from None
    except DataError as error:
        raise DataError(error.what, where=where, got=error.got, expected=error.expected) from None


PLAIN = {"answer_form": "plain"}
"""Target of answers in other languages than English: their spelling is not changed any more."""


def answers(cell: Any, where: str, english: bool = True) -> dict[str, Any]:
    """Return the targets of an answers cell: one answer, a list of people's, or an object answer -> score.

    Raises:
        DataError: anything else.
    """
    form = table_form if english else plain_form
    if isinstance(cell, dict) and all(isinstance(s, int | float) and abs(s) < math.inf for s in cell.values()):
        scores: dict[str, float] = {}
        for answer, score in cell.items():  # of two answers that are spelt alike, the higher score
            spelt = form(str(answer))
            scores[spelt] = max(float(score), scores.get(spelt, 0.0))
        return {"answers": scores}
    if not isinstance(cell, list | str | int | float):
        expected = "{answer: score}, a list, or one answer"
        raise DataError("The answers are not understood.", where=where, got=shown(cell), expected=expected)
    words = [str(one["answer"]) if isinstance(one, dict) and "answer" in one else str(one) for one in as_list(cell)]
    forms = [form(word) for word in words]
    scores = {forms[0]: 1.0} if len(forms) == 1 else soft_scores(forms)  # people's answers by VQA's rule
    return {"answers": scores, **({"raw_answers": words} if english else PLAIN)}


def choices(items: list[Any], correct: Any, where: str) -> dict[str, Any]:
    """Return the targets of a question with choices: ``choices``, and where it is known ``choice`` and ``answers``.

    Args:
        items: the choices.
        correct: the place of the right one, counted from 0, or the right one itself; None: unknown.
        where: the row.

    Raises:
        DataError: there are fewer than two, or the right one is none of them.
    """
    words = [str(item) for item in items]
    if len(words) < 2:
        raise DataError("The question has no choices.", where=where, got=shown(items), expected="two or more")
    if correct is None:
        return {"choices": words}
    index = int(correct) if str(correct).isdecimal() and str(correct) not in words else None
    word = str(correct) if index is None else words[index] if index < len(words) else ""
    if word not in words:
        expected = f"0 to {len(words) - 1}, or one of {', '.join(words)}"
        raise DataError("The right choice is none of the choices.", where=where, got=shown(correct), expected=expected)
    return {"choices": words, "choice": word, "answers": {table_form(word): 1.0}}
