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


def word(given: Any, where: str, column: str) -> str:
    """A name or an id: text, or a whole number.

    Raises:
        DataError: anything else, or text that is none (see :func:`vlcli.data.texts.sentence`).
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given)
    return sentence(given, where, column)


def label(given: Any, where: str, column: str) -> str | int | float:
    """A class: a word or a finite number; true and false are 1 and 0.

    Raises:
        DataError: anything else.
    """
    if isinstance(given, bool):
        return int(given)
    if isinstance(given, str):
        return given
    if isinstance(given, int | float) and math.isfinite(given) and abs(given) < 2**63:
        return given
    raise DataError(
        f"The field {column!r} is no label.", where=where, got=shown(given), expected="a word or a finite number"
    )


def box(given: Any, where: str) -> list[float]:
    """One box, x1 y1 x2 y2 in pixels.

    Raises:
        DataError: it is none, or its corners are out of order, as those of x, y, width and height often are.
    """
    numbers = given[0] if isinstance(given, list) and len(given) == 1 else given
    plain = isinstance(numbers, list) and len(numbers) == 4 and all(type(n) in (int, float) for n in numbers)
    if not plain or not all(map(math.isfinite, numbers)):
        expected = "[x1, y1, x2, y2] in pixels"
        raise DataError("The box is not understood.", where=where, got=shown(given), expected=expected)
    x1, y1, x2, y2 = map(float, numbers)
    if x2 <= x1 or y2 <= y1:
        hint = "boxes written as x, y, width, height must become corners: x2 = x + width, y2 = y + height"
        expected = "[x1, y1, x2, y2] with x1 < x2 and y1 < y2"
        raise DataError("The box has no area.", where=where, got=shown(given), expected=expected, hint=hint)
    return [x1, y1, x2, y2]


def box_list(boxes: Any, labels: list[Any], where: str, known: list[str]) -> BoxList:
    """Boxes and their classes.

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


def answers(given: Any, where: str, english: bool = True) -> dict[str, Any]:
    """The targets of an answers cell: one answer, a list of people's, or an object answer -> score.

    Raises:
        DataError: anything else.
    """
    form = table_form if english else plain_form
    if isinstance(given, dict) and all(_is_score(score) for score in given.values()):
        return {"answers": _rows_of_a_table({str(answer): float(score) for answer, score in given.items()}, form)}
    if isinstance(given, list):
        words = [str(item["answer"]) if isinstance(item, dict) and "answer" in item else str(item) for item in given]
        return {"answers": _scores(words, form), **({"raw_answers": words} if english else PLAIN)}
    if isinstance(given, str | int | float):
        return {"answers": _scores([str(given)], form), **({"raw_answers": [str(given)]} if english else PLAIN)}
    raise DataError(
        "The answers are not understood.",
        where=where,
        got=shown(given),
        expected="{answer: score}, a list, or one answer",
    )


def choices(given: list[Any], correct: Any, where: str) -> dict[str, Any]:
    """The targets of a question with choices: ``choices``, and where it is known ``choice`` and ``answers``.

    Args:
        given: the choices.
        correct: the place of the right one, counted from 0, or the right one itself; None: unknown.
        where: the row.

    Raises:
        DataError: there are fewer than two, or the right one is none of them.
    """
    words = [str(item) for item in given]
    if len(words) < 2:
        raise DataError("The question has no choices.", where=where, got=shown(given), expected="two or more")
    if correct is None:
        return {"choices": words}
    place = int(correct) if str(correct).isdecimal() and str(correct) not in words else None
    word = str(correct) if place is None else words[place] if place < len(words) else ""
    if word not in words:
        expected = f"0 to {len(words) - 1}, or one of {', '.join(words)}"
        raise DataError("The right choice is none of the choices.", where=where, got=shown(correct), expected=expected)
    return {"choices": words, "choice": word, "answers": {table_form(word): 1.0}}


def _scores(words: list[str], spelt: Callable[[str], str]) -> dict[str, float]:
    """A single answer counts whole, people's by VQA's rule; spelt as answer tables are, so that rows are found."""
    forms = [spelt(word) for word in words]
    return {forms[0]: 1.0} if len(forms) == 1 else soft_scores(forms)


def _rows_of_a_table(scores: dict[str, float], spelt: Callable[[str], str]) -> dict[str, float]:
    """Answers spelt as answer tables are; of two that are one there, the higher score."""
    found: dict[str, float] = {}
    for answer, score in scores.items():
        form = spelt(answer)
        found[form] = max(score, found.get(form, 0.0))
    return found


def _is_score(score: Any) -> bool:
    return isinstance(score, int | float) and abs(score) < math.inf
