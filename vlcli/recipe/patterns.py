"""Searches regular expressions of a recipe with a limit of time: ``(a|aa)+$`` takes exponential time in ``re``."""

import math
import re
import time
from typing import Any

from vlcli.errors import Problem, RecipeError

_MOST_LETTERS = 1000  # the longest pattern
# Limit of all searches with one pattern together; a usual one takes microseconds a name
MOST_SECONDS = 5.0
_MOST_REPEATS = 100_000  # limit of the product of a pattern's counts, such as `{1,9}`, which take memory

_UNITS = re.compile(
    r"""\\N\{[^}]*\} | \\.                     # an escape
    | \[\^?\]?(?:\\.|[^\]\\])*\]              # a set of characters
    | \{(?:\d+(?:,\d*)?|,\d*)\}                # a count, as re reads them
    | \{                                        # a brace that re reads as itself
    """,
    re.VERBOSE | re.DOTALL,
)
_COUNTS = re.compile(r"\{\s*(?:\d*\s*,)?\s*(\d{1,30})\s*,?\s*\}")


class Searcher:
    """A regular expression at ``key`` of a recipe, searched in names. Raises RecipeError: it is none, or too long."""

    def __init__(self, pattern: str, key: str) -> None:
        self.pattern, self.key, self.left = pattern, key, MOST_SECONDS
        try:
            self._compiled = _compile(pattern)
        except ValueError as error:
            problem = Problem(key, "not a regular expression", got=pattern[:200], expected=str(error))
            raise RecipeError([problem]) from None

    def search(self, name: str) -> bool:
        """Returns True if the pattern occurs in ``name``.

        Raises RecipeError: all its searches together have taken longer than :data:`MOST_SECONDS`.
        """
        start = time.perf_counter()
        try:
            return self._compiled.search(name, timeout=max(self.left, 1e-3)) is not None
        except TimeoutError:
            raise self._slow() from None
        finally:
            self.left -= time.perf_counter() - start

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns begin and end of each match. Raises RecipeError: this text takes over :data:`MOST_SECONDS`."""
        try:
            return [hit.span() for hit in self._compiled.finditer(text, timeout=MOST_SECONDS)]
        except TimeoutError:
            raise self._slow() from None

    def _slow(self) -> RecipeError:
        what = f"this pattern takes longer than {MOST_SECONDS:g} s to search"
        expected = "no repetition inside a repetition, such as (a|aa)+"
        hint = "say what must match more directly, e.g. '^model\\.head'"
        return RecipeError([Problem(self.key, what, got=self.pattern, expected=expected, hint=hint)])


def _compile(text: str) -> Any:
    import regex

    if len(text) > _MOST_LETTERS:
        raise ValueError(f"a regular expression of at most {_MOST_LETTERS:,} letters")
    if math.prod(max(int(count), 1) for count in _COUNTS.findall(text)) > _MOST_REPEATS:
        raise ValueError(f"a regular expression whose counts {{n}} multiply to at most {_MOST_REPEATS:,}")
    try:
        re.compile(text)  # refuses what Python's syntax lacks, such as recursion
        # A brace that re reads as itself is escaped: regex reads {e<=1} as fuzzy matching.
        return regex.compile(_UNITS.sub(lambda unit: r"\{" if unit[0] == "{" else unit[0], text))
    except (re.error, regex.error, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(f"a regular expression ({str(error)[:100]})") from None
