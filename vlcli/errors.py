"""Errors that a user can cause, and the exit code each one ends with.

    VlcliError                  1  a stage failed
    ├── UsageError              2  the command line is off
    ├── RecipeError             3  the recipe is invalid (carries every problem found)
    ├── ComponentError          4  a component is unknown, broken, or lacks its extra
    └── DataError               5  data or weights are missing or corrupt

Each message says what happened, where, what was got, what was expected and what to do next. The
command line prints it without a traceback (``-vv`` shows one).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ComponentError", "DataError", "Problem", "RecipeError", "UsageError", "VlcliError", "shown"]


class VlcliError(Exception):
    """A failure with a message made for the person who typed the command.

    Args:
        what: what went wrong, one sentence.
        where: the file (``file:line``), key path or component concerned.
        got: the value met.
        expected: what would have been right.
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
        """The same facts for ``--json``."""
        facts = {"what": self.what, "where": self.where, "got": self.got, "expected": self.expected}
        return {"code": self.exit_code, **facts, "next": self.hint}

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.__dict__, self.args)


def shown(value: object, most: int = 200) -> str:
    """``repr(value)`` for a message, cut to ``most`` letters; a value that has none is named by its type."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a list that holds itself
        return f"({type(value).__name__} too large to show)"
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} letters)"


def _rebuild(kind: type[VlcliError], state: dict[str, object], args: tuple[object, ...]) -> VlcliError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


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
    """One fault of a recipe.

    Attributes:
        key: dotted path inside the recipe, e.g. ``stages.pretrain.optimizer.lr``.
        what: what is wrong with it.
        where: ``file:line`` where known.
        got: the value met.
        expected: what would have been right.
        hint: what to do.
        code: exit code this fault alone would give (3 recipe, 4 component, 5 data).
    """

    key: str
    what: str
    where: str = ""
    got: str = ""
    expected: str = ""
    hint: str = ""
    code: int = 3

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        rows = [("got", self.got), ("expected", self.expected), ("next", self.hint)]
        return "\n".join([f"{place}{self.key}: {self.what}", *(f"  {label}: {text}" for label, text in rows if text)])


class RecipeError(VlcliError):
    """A recipe is invalid; ``problems`` lists every fault, not only the first."""

    exit_code = 3

    def __init__(self, problems: list[Problem], recipe: str = "") -> None:
        count = f"{len(problems)} problem" + ("" if len(problems) == 1 else "s")
        super().__init__(f"{count} in recipe {recipe}".rstrip())
        self.problems = problems
        if problems and all(problem.code != 3 for problem in problems):
            self.exit_code = problems[0].code

    def __str__(self) -> str:
        return "\n".join([f"{self.what}:", *(str(problem) for problem in self.problems)])

    def as_dict(self) -> dict[str, object]:
        return {"code": self.exit_code, "what": self.what, "problems": [vars(problem) for problem in self.problems]}
