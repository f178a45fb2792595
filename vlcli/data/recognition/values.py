"""Tests what the values of a column can be: sentences, answers, classes, boxes, numbers of rows."""

import math
import re
from collections.abc import Container, Iterable, Sequence
from itertools import pairwise
from typing import Any

from vlcli.data.recognition.recognised import part_of

# Classes of a column, at most
MOST_LABELS = 200
# Rows below which different values in every row mean nothing
FEW = 10

_FLAGS = {"0", "1", "0.0", "1.0", "-1", "-1.0", "true", "false", "yes", "no"}
# Letters of languages that write no spaces: Thai, Lao, Japanese, Chinese.
_NO_SPACES = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")


def count_words(values: Sequence[Any]) -> float:
    """Return the mean number of words of a cell, of a list its first text's; 0 where most cells are no text.

    Numbers are no words.
    """
    first = [value[0] if isinstance(value, list) and value else value for value in values]
    texts = [value for value in first if isinstance(value, str)]
    words = sum(
        sum(any(map(str.isalpha, word)) for word in text.split()) + len(_NO_SPACES.findall(text)) / 2 for text in texts
    )
    return words / len(values) if len(texts) > 0.9 * len(values) else 0.0


def is_address(values: Sequence[Any]) -> bool:
    """Return whether most values are addresses of the web."""
    return sum(str(value).startswith(("http://", "https://")) for value in values) > len(values) / 2


def is_split(values: Sequence[Any]) -> bool:
    """Return whether values are words for parts, of two parts at least."""
    distinct = {str(value).lower() for value in values}
    return 1 < len(distinct) <= 8 and sum(map(bool, map(part_of, distinct))) >= 2


def are_boxes(values: Sequence[Any]) -> bool:
    """Return whether every cell holds boxes, or one."""
    return all(is_box(value) or (isinstance(value, list) and all(map(is_box, value))) for value in values)


def is_box(value: Any) -> bool:
    """Return whether a value is four numbers."""
    return isinstance(value, list) and len(value) == 4 and all(type(number) in (int, float) for number in value)


def are_word_lists(values: Sequence[Any]) -> bool:
    """Return whether every cell is a list of words."""
    return all(isinstance(value, list) and all(isinstance(word, str | int) for word in value) for value in values)


def are_answers(values: Sequence[Any]) -> bool:
    """Return whether values are answers, lists of people's answers, or objects answer -> score.

    Row numbers are none, nor is what Prodigy writes of a row.
    """
    plain = [value for value in values if isinstance(value, str | int | float)]
    if {"accept"} <= set(plain) <= {"accept", "reject", "ignore"}:
        return False
    known = all(isinstance(value, str | int | float | list | dict) for value in values)
    return known and not is_row_number(values) and (len(plain) < len(values) or has_repeats(plain))


def is_answer_like(values: Sequence[Any]) -> bool:
    """Return whether values are short, several and repeat."""
    return is_short(values) and len(set(map(str, values))) > 1 and has_repeats(values) and not is_row_number(values)


def is_label_like(values: Sequence[Any]) -> bool:
    """Return whether values are classes: a few words or whole numbers that repeat."""
    distinct, numbers = {str(value) for value in values}, [as_number(value) for value in values]
    if is_row_number(values) or (len(distinct) > 20 and None not in numbers):
        return False
    few = 1 < len(distinct) <= max(2, min(MOST_LABELS, len(values) // 2))
    return few and is_short(values) and not any(number is not None and number % 1 for number in numbers[:1000])


def is_short(values: Sequence[Any]) -> bool:
    """Return whether values are short words or numbers."""
    plain = all(isinstance(value, str | int | float | bool) for value in values)
    return plain and sum(len(str(value).split()) for value in values) <= 3 * len(values) and not is_address(values)


def is_verdict(values: Sequence[Any]) -> bool:
    """Return whether values are two or three words for right and wrong."""
    known = {"true", "false", "yes", "no", "0", "1", "entailment", "neutral", "contradiction", "right", "wrong"}
    distinct = {str(value).lower() for value in values}
    return 2 <= len(distinct) <= 3 and distinct <= known


def has_repeats(values: Sequence[Any]) -> bool:
    """Return whether a value occurs more than once: ids and row numbers, which do not, cannot be learnt."""
    return len(values) < FEW or len(set(map(str, values))) < len(values)


def is_row_number(values: Sequence[Any]) -> bool:
    """Return whether values are numbers that grow from row to row; a few that recur are classes."""
    numbers = [as_number(value) for value in values]
    grow = sum(one is not None and two is not None and one < two for one, two in pairwise(numbers))
    several = len({one for one in numbers if one is not None}) >= len(values) / 4  # in each part they begin anew
    return len(values) >= FEW and several and grow >= 0.9 * (len(values) - 1)


def as_number(value: Any) -> float | None:
    """Return a cell as a finite number; None where it is none."""
    if isinstance(value, bool):
        return None
    try:
        return number if math.isfinite(number := float(value)) else None
    except (TypeError, ValueError, OverflowError):
        return None


def are_flags(values: Sequence[Any]) -> bool:
    """Return whether values say yes or no, as numbers or words; -1: unknown."""
    return {str(value).lower() for value in values} <= _FLAGS


def names_mark(values: Sequence[Any]) -> str | None:
    """Return the separator of several classes in cells; empty where cells are lists, None where they hold one class."""
    if values and are_word_lists(values) and len({word for cell in values for word in cell}) > 1:
        return ""
    texts = [value for value in values if isinstance(value, str)]
    for mark in ("|", ";", ",", " ") if len(texts) == len(values) else ():
        cells = [[part.strip() for part in text.split(mark)] for text in texts]
        names = [name for parts in cells for name in parts]
        many = sum(len(parts) > 1 for parts in cells) > len(cells) / 10
        if many and len(set(names)) <= min(MOST_LABELS, len(names) / 3):
            return mark
    return None


def columns_in(options: Iterable[str], known: Container[str]) -> list[str]:
    """Return the columns that options name: each a column, or several with commas between them."""
    columns = []
    for text in options:
        parts = [part.strip() for part in text.split(",")]
        columns += parts if text not in known and all(part in known for part in parts) else [text]
    return columns
