"""Refuses ids that stand twice in the files of a data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vlcli.data.files import value
from vlcli.data.sample import Example
from vlcli.errors import DataError, shown


def by_id(rows: Sequence[Any], name: str, where: str, needed: bool = True) -> dict[Any, Any]:
    """Return rows by their id; equal rows count once.

    Args:
        rows: objects of a file.
        name: the field that holds the id: ``question_id``.
        where: file and list: ``FILE: annotations``.
        needed: refuse rows without an id; else their number is the id.

    Raises:
        DataError: two different rows have one id (the message names both places), or one has none.
    """
    numbers: dict[Any, int] = {}
    for number, row in enumerate(rows):
        lacks = not needed and isinstance(row, dict) and row.get(name) is None
        key = ("row", number) if lacks else value(row, name, (int, str), f"{where}[{number}]")
        first = numbers.setdefault(key, number)
        if first != number and rows[first] != row:
            raise twice(name, key, where, f"[{first}] and [{number}]")
    return {key: rows[number] for key, number in numbers.items()}


def check_keys(reader: Any, hashes: Sequence[int], example_at: Callable[[int], Example]) -> None:
    """Refuse a data set in which two examples have one key.

    Args:
        reader: a :class:`vlcli.data.reader.Reader`.
        hashes: (N,) of the keys, in the order of the examples.
        example_at: returns an example by its row; called where two hashes are equal.

    Raises:
        DataError: two have one key; the message says where both stand.
    """
    column = np.array(hashes, np.int64)
    order = np.argsort(column, kind="stable")
    equal = np.flatnonzero(column[order][1:] == column[order][:-1])
    if not len(equal):
        return
    first, second = min((int(order[row]), int(order[row + 1])) for row in equal)
    one, other = example_at(first), example_at(second)
    if one.key != other.key:
        return  # two keys with one hash: about one in 10**12 pairs of data sets
    place_of = getattr(reader, "place_of", "example {}".format)
    got = []
    for row, example in ((first, one), (second, other)):
        parts = [shown(example.text)] * (example.text is not None) + example.images[:2]
        got.append(f"{place_of(row)} ({', '.join(parts)})")
    raise twice("id", one.key, reader._where(), " and ".join(got), getattr(reader, "keys_help", ""))


def twice(what: str, key: Any, where: str, got: str, hint: str = "") -> DataError:
    """Make the error for an id that two rows have."""
    return DataError(
        f"Two rows have the {what} {shown(key)}.",
        where=where,
        got=got,
        expected=f"a {what} of its own for every row",
        hint=hint or "files merged of several sets need new ids; of a row that stands twice, delete one",
    )
