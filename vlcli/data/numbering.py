"""Compares how data sets number their labels, and the classes of their boxes."""

from collections.abc import Sequence
from typing import Any

from vlcli.errors import DataError


def label_names(readers: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of several data sets' labels, () of numbers. Raises DataError: two number them differently."""
    names = [tuple(reader.label_names()) if hasattr(reader, "label_names") else () for reader in readers]
    hint = "give every data set the same list: labels: [WORD, ...] of tables, classes: [WORD, ...] of folders"
    return _common(readers, names, "their labels", hint)


def class_names(readers: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of the classes of several data sets' boxes. Raises DataError: two number them differently."""
    hint = "give every file the same categories in the same order"
    return _common(readers, [tuple(reader.class_names()) for reader in readers], "the classes of their boxes", hint)


def _common(readers: Sequence[Any], lists: list[tuple[str, ...]], what: str, hint: str) -> tuple[str, ...]:
    longest = max(lists, key=len, default=())
    for reader, names in zip(readers, lists, strict=True):
        if names != longest[: len(names)]:
            where, what = f"{readers[lists.index(longest)].label} and {reader.label}", f"number {what} differently"
            got = " and ".join(f"{', '.join(one[:4])} ..." for one in (longest, names))
            expected = "the same names in the same order"
            raise DataError(f"Two data sets {what}.", where=where, got=got, expected=expected, hint=hint)
    return longest
