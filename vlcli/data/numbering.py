"""Compares how data sets number their labels, and the classes of their boxes."""

from collections.abc import Sequence
from typing import Any

from vlcli.errors import DataError


def label_names(readers: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of the labels of several data sets; empty where labels are numbers.

    Raises:
        DataError: two data sets number them differently.
    """
    hint = "give every data set the same list: labels: [WORD, ...] of tables, classes: [WORD, ...] of folders"
    return _common(
        [(reader, tuple(getattr(reader, "label_names", list)())) for reader in readers], "their labels", hint
    )


def class_names(readers: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of the classes of several data sets' boxes; empty where there are none.

    Raises:
        DataError: two data sets number them differently.
    """
    hint = "give every file the same categories in the same order"
    return _common([(reader, tuple(reader.class_names())) for reader in readers], "the classes of their boxes", hint)


def _common(lists: list[tuple[Any, tuple[str, ...]]], what: str, hint: str) -> tuple[str, ...]:
    named = [(reader, names) for reader, names in lists if names]
    if not named:
        return ()
    first, longest = max(named, key=lambda pair: len(pair[1]))
    for reader, names in named:
        if names != longest[: len(names)]:
            raise DataError(
                f"Two data sets number {what} differently.",
                where=f"{first.label} and {reader.label}",
                got=f"{', '.join(longest[:4])} ... and {', '.join(names[:4])} ...",
                expected="the same names in the same order",
                hint=hint,
            )
    return longest
