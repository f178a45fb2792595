"""Recognises the columns that hold the choices of a question."""

import re
from collections.abc import Sequence
from typing import Any

from vlcli.data.files import grouped
from vlcli.data.recognition.tables import TableFile
from vlcli.data.recognition.values import are_word_lists


def are_choices(lists: Sequence[Any], answers: Sequence[Any]) -> bool:
    """Return whether cells are lists of choices, and every answer is the place of one."""
    rows = zip(answers, lists, strict=False)
    alike = are_word_lists(lists) and len(lists) == len(answers)
    return alike and all(type(at) is int and 0 <= at < len(words) and at not in words for at, words in rows)


def choice_columns(table: TableFile, left: dict[str, list[Any]], answers: str) -> list[str] | None:
    """Take columns such as ``A`` to ``D`` or ``option1`` to ``option4``, one of which every answer names or repeats."""
    hits = filter(None, (re.fullmatch(r"(.*?)[ _-]?([A-Ha-h]|[0-8])", name) for name in left))
    for names in grouped((hit[1].lower(), hit[0]) for hit in hits).values():
        letters = {name[-1].upper() for name in names}
        letters = set() if "1" in letters and "0" not in letters else letters  # readers count places from 0
        answered = [row for row in table.rows if row.get(answers) not in (None, "")]
        rows = [(str(row[answers]), [str(row.get(name)) for name in names]) for row in answered]
        if len(names) > 1 and all(word.upper() in letters or word in words for word, words in rows):
            for name in names:
                del left[name]
            return names
    return None
