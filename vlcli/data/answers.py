"""Reads and builds answer tables: the strings of a classifier's rows, in order.

Published forms: a list of ``{"ans": "net", "dsets": ["vqa", ...]}`` (LXMERT's ``all_ans.json``), a list of strings
(``trainval_label2ans.json``), an object string -> row (``trainval_ans2label.json``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from vlcli.data.files import inside, read_json
from vlcli.errors import DataError
from vlcli.metrics.vqa import table_form

ANSWER_TABLE_SIZE = 9500
"""Answers of LXMERT's pre-training table."""
# Sets whose fine-tuning table goes into a built table whole: the answers of at least so many questions.
LEAST: Mapping[str, int] = {"vqa": 9, "gqa": 1}

_DIGITS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_SAME = {word: str(number) for number, word in enumerate(_DIGITS, 1)} | {"grey": "gray"}


def normalise(answer: str) -> str:
    """Normalise an answer as LXMERT's code: lower case, no full stop, no a, an, the (each once), few words mapped."""
    answer = answer.lower()
    if answer.endswith("."):
        answer = answer[:-1].strip()
    for article in ("a ", "an ", "the "):
        if answer.startswith(article):
            answer = answer.removeprefix(article).strip()
    return _SAME.get(answer, answer)


@dataclass(frozen=True)
class AnswerList:
    """The answers of a classifier by row, and the data sets of each (``sets``; empty where the file does not say)."""

    strings: tuple[str, ...]
    sets: tuple[tuple[str, ...], ...] = ()
    _index: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for row, answer in enumerate(self.strings):
            self._index.setdefault(answer, row)

    def __len__(self) -> int:
        return len(self.strings)

    def exact(self, answer: str) -> int | None:
        return self._index.get(answer)

    def find(self, answer: str) -> int | None:
        """Return the row of an answer as written, else of its normalised form; None without any."""
        row = self.exact(answer)
        return self._index.get(normalise(answer)) if row is None else row

    def only(self, sets: Collection[str]) -> AnswerList:
        kept = [row for row, names in enumerate(self.sets) if not set(names).isdisjoint(sets)]
        return AnswerList(tuple(self.strings[k] for k in kept), tuple(self.sets[k] for k in kept))


def read_answers(path: Path) -> AnswerList:
    """Read a table in a published form. Raises DataError: it is missing, of another form, or has two equal answers."""
    content = read_json(path, (list, dict))
    table = _of_object(content, path) if isinstance(content, dict) else _of_list(content, path)
    answer, count = next(iter(Counter(table.strings).most_common(1)), ("", 0))
    if count != 1:
        got = f"{answer!r} twice" if count else "no answer"
        raise DataError("This is no answer table.", where=str(path), got=got, expected="different answers")
    return table


def _of_list(rows: list[Any], path: Path) -> AnswerList:
    if all(isinstance(row, str) for row in rows):
        return AnswerList(tuple(rows))
    for number, row in enumerate(rows):
        if not (isinstance(row, dict) and isinstance(row.get("ans"), str) and isinstance(row.get("dsets") or [], list)):
            what, expected = "An answer has no text, or no list of sets.", 'a string or {"ans": ..., "dsets": [...]}'
            raise DataError(what, where=f"{path}[{number}]", got=str(row)[:80], expected=expected)
    return AnswerList(tuple(row["ans"] for row in rows), tuple(tuple(map(str, row.get("dsets") or ())) for row in rows))


def _of_object(rows: dict[str, Any], path: Path) -> AnswerList:
    numbers = list(rows.values())
    if not all(isinstance(number, int) for number in numbers) or sorted(numbers) != list(range(len(rows))):
        expected = "every number from 0 on, once"
        raise DataError("The answers are not numbered one after another.", where=str(path), expected=expected)
    return AnswerList(tuple(sorted(rows, key=lambda answer: rows[answer])))


def answer_rows(table: AnswerList) -> list[dict[str, Any]]:
    """Return a table in the form of ``all_ans.json``."""
    rows = zip_longest(table.strings, table.sets, fillvalue=())
    return [{"ans": answer, "dsets": list(names)} for answer, names in rows]


def build_answer_table(
    counts: Mapping[str, Mapping[str, int]], size: int = ANSWER_TABLE_SIZE, least: Mapping[str, int] = LEAST
) -> AnswerList:
    """Build a table of ``size`` normalised answers over several question sets, in alphabetical order.

    The fine-tuning tables of the sets in ``least`` go in whole (answers of so many questions or more), then the most
    frequent answers of all sets; where the tables alone are larger, the most frequent of them. Neither paper nor code
    of LXMERT says how its table was made; this rule gives its pattern of memberships.

    Args:
        counts: for each set, the number of questions by best answer.
    """
    members: dict[str, dict[str, int]] = {}
    total: Counter[str] = Counter()
    for name, questions in counts.items():
        normalised: Counter[str] = Counter()
        for answer, count in questions.items():
            normalised[normalise(answer)] += count
        members[name] = {answer: n for answer, n in normalised.items() if n >= least.get(name, 1)}
        total.update(members[name])
    whole = {answer for name in members if name in least for answer in members[name]}
    strings = tuple(sorted(sorted(total, key=lambda answer: (answer not in whole, -total[answer], answer))[:size]))
    return AnswerList(strings, tuple(tuple(n for n in members if answer in members[n]) for answer in strings))


def best_answer(targets: Mapping[str, Any]) -> str | None:
    """Return the answer that a question's file names, else the one with the highest score; None without any.

    A named answer is spelt as the scores spell it (``t-shirt`` as ``t shirt``), so that both have one row in a table.
    """
    answers: Mapping[str, float] = targets.get("answers") or {}
    if targets.get("answer") is None:
        return max(answers, key=lambda answer: answers[answer], default=None)
    named = str(targets["answer"])
    return next((form for form in (named, table_form(named)) if form in answers), named)


def mapped(answers: Sequence[str], table: AnswerList) -> tuple[int, list[str]]:
    """Return how many of ``answers`` have a row in ``table``, and those that have none."""
    missing = [answer for answer in answers if table.find(answer) is None]
    return len(answers) - len(missing), missing


def table_file(named: str | None, readers: Sequence[Any], usual: str) -> Path | None:
    """Return the table's file under the first reader's root: the one named, else the usual one if it exists."""
    path = inside(readers[0].root, named or usual) if readers else None
    return path if path is not None and (named or path.is_file()) else None


def count_answers(readers: Sequence[Any]) -> dict[str, Counter[str]]:
    """Count the questions by best answer, for each data set."""
    counts: dict[str, Counter[str]] = {}
    for reader in readers:
        for example in reader.examples():
            if (answer := best_answer(example.targets)) is not None:
                counts.setdefault(str(example.targets.get("set", reader.label)), Counter())[answer] += 1
    return counts
