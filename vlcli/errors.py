"""Defines the errors that a user can cause, with their exit codes.

    VlcliError                  1  a stage failed
    ├── UsageError              2  the command line is off
    ├── RecipeError             3  the recipe is invalid (carries every problem found)
    ├── ComponentError          4  a component is unknown, broken, or lacks its extra
    └── DataError               5  data or weights are missing or corrupt

The command line prints the message without a traceback (``-vv`` shows one).
"""

import copyreg
import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

__all__ = ["ComponentError", "DataError", "Problem", "RecipeError", "UsageError", "VlcliError", "shown"]
_MOST_SHOWN = 8


class VlcliError(Exception):
    """A failure with a message for the user.

    Args:
        what: one sentence.
        where: the file (``file:line``), key path or component.
        got: the wrong value.
        expected: a right value.
        hint: the next command or step.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", got: str = "", expected: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.got, self.expected, self.hint = what, where, got, expected, hint

    def __str__(self) -> str:
        rows = [("where", self.where), ("got", self.got), ("expected", self.expected), ("next", self.hint)]
        return "\n".join([self.what, *(f"  {label}: {text}" for label, text in rows if text)])

    def as_dict(self) -> dict[str, object]:
        facts = {"what": self.what, "where": self.where, "got": self.got, "expected": self.expected}
        return {"code": self.exit_code, **facts, "next": self.hint}

    def __reduce__(self) -> tuple[object, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


def shown(value: object, most: int = 200) -> str:
    """Returns ``repr(value)`` cut to ``most`` letters, or the name of its type if it has no ``repr``."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a list that holds itself
        return f"({type(value).__name__} too large to show)"
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} letters)"


def did_you_mean(word: str, known: Iterable[str], count: int = 1, cutoff: float = 0.6) -> str:
    """Returns a hint at the known words that are spelt nearly as ``word``; empty if there are none."""
    by_letters = {one.lower(): one for one in known}
    close = [by_letters[one] for one in difflib.get_close_matches(word.lower(), list(by_letters), count, cutoff)]
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""


class UsageError(VlcliError):
    """The command line is off."""

    exit_code = 2


class ComponentError(VlcliError):
    """A component is unknown, its import fails, or the extra it needs is not installed."""

    exit_code = 4


class DataError(VlcliError):
    """Data or weights are missing, unreadable, truncated or do not fit."""

    exit_code = 5


@dataclass(frozen=True)
class Problem:
    """One fault of a recipe, with the parts of :class:`VlcliError`.

    Attributes:
        key: dotted path inside the recipe, e.g. ``stages.pretrain.optimizer.lr``.
        code: exit code of this fault alone (3 recipe, 4 component, 5 data).
        also: keys of other stages, rows or places with the same fault.
    """

    key: str
    what: str
    where: str = ""
    got: str = ""
    expected: str = ""
    hint: str = ""
    code: int = 3
    also: tuple[str, ...] = ()

    @classmethod
    def of(cls, key: str, error: VlcliError, where: str = "") -> Self:
        """Returns an error as a fault at ``key``, written at ``where``; ``what`` names the error's own place."""
        what = f"{error.what} ({error.where})" if error.where else error.what
        return cls(key, what, where, error.got, error.expected, error.hint, error.exit_code)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        also = ", ".join(self.also[:_MOST_SHOWN]) + (", ..." if len(self.also) > _MOST_SHOWN else "")
        rows = [("got", self.got), ("expected", self.expected), ("also", also), ("next", self.hint)]
        return "\n".join([f"{place}{self.key}: {self.what}", *(f"  {label}: {text}" for label, text in rows if text)])


def each_once(problems: Iterable[Problem]) -> list[Problem]:
    """Merges equal faults: what is missing (code 5) counts once, anything else once for all rows of a table."""
    merged: dict[tuple[object, ...], Problem] = {}
    for one in problems:
        place = () if one.code == DataError.exit_code else (one.where, one.key.rpartition(": ")[2], one.expected)
        alike = (one.what, one.got, one.code, *place)
        first = merged.setdefault(alike, one)
        keys = dict.fromkeys((first.key, *first.also, one.key, *one.also))
        merged[alike] = replace(first, also=tuple(keys)[1:])
    return list(merged.values())


class RecipeError(VlcliError):
    """A recipe is invalid; ``problems`` lists every fault once, not only the first."""

    exit_code = 3

    def __init__(self, problems: list[Problem], recipe: str = "") -> None:
        problems = each_once(problems)
        count = f"{len(problems)} problem" + ("" if len(problems) == 1 else "s")
        super().__init__(f"{count} in recipe {recipe}".rstrip())
        self.problems = problems
        if problems and all(problem.code != 3 for problem in problems):
            self.exit_code = problems[0].code

    def __str__(self) -> str:
        return "\n".join([f"{self.what}:", *(str(problem) for problem in self.problems)])

    def as_dict(self) -> dict[str, object]:
        return {"code": self.exit_code, "what": self.what, "problems": [vars(problem) for problem in self.problems]}
