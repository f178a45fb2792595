"""Checks the sentences, labels, answers and ids of examples; builds the errors of readers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlcli.data.files import value
from vlcli.data.sample import Example
from vlcli.errors import DataError, shown
from vlcli.registry.contract import blame, origin


def missing(reader: Any, file: Path) -> DataError:
    """Make the error for a missing file of a data set."""
    known = f"; splits are {', '.join(reader.splits)}" if reader.splits else ""
    hint = "point the recipe's `root` at the folder that holds it, e.g. root=DATA"
    return DataError(f"A file of the data set is missing (split {reader.split!r}{known}).", where=str(file), hint=hint)


def senseless(reader: Any, error: Exception) -> DataError:
    """Make the error for files at which a reader raised an unexpected exception."""
    what = f"The reader {reader.label} makes no sense of its files."
    where = ", ".join(map(str, reader.files()[:3])) or str(reader.root)
    got = f"{type(error).__name__}: {str(error)[:200]}"
    hint = f"the reader ({origin(type(reader))}) stopped at {blame(error, type(reader))}; -vv shows the traceback"
    return DataError(what, where=where, got=got, expected="files of the format that it documents", hint=hint)


def checked(example: Example) -> Example:
    """Return what a reader gives. Raises TypeError: it is no example, or its pictures are no list of ids."""
    images: Any = example.images if isinstance(example, Example) else ""
    if not isinstance(images, list | tuple) or not all(isinstance(one, str) for one in images):
        raise TypeError(f"{shown(example)} is no Example whose images are a list of ids")
    return example


def empty(reader: Any, total: int) -> DataError:
    """Make the error for a data set of whose ``total`` examples none is left."""
    files = ", ".join(map(str, reader.files()[:3])) or str(reader.image_folder)
    left_out = ", ".join(f"{count} {reason}" for reason, count in reader.left_out.items()) if not total else ""
    why = f" after take={reader.take!r}" if reader.take and total else f"; left out: {left_out}" if left_out else ""
    what, hint = f"The data set {reader.label} is empty.", "" if left_out else "check `split`, `take` and `limit`"
    return DataError(what, where=files, got=f"0 of {total} examples{why}", expected="one example or more", hint=hint)


class SameIdError(DataError):
    """Two pictures of a data set have one id."""


def two_files(name: str, first: Path, second: Path, label: str) -> SameIdError:
    """Make the error for two files of the data set ``label`` with one image id."""
    return SameIdError(f"Two pictures have the id {name!r}.", where=label, got=f"{first} and {second}")


def share_id(name: str, first: Path, second: Path, ids: str, label: str = "") -> DataError:
    """Make the error for two pictures with one id in two data sets."""
    what, got = f"Two pictures have the id {name!r}.", f"{first} and {second}"
    expected = "different names, or the option `ids: path` beside each of these data sets: their paths are ids then"
    return DataError(what, where=label, got=got, expected=expected, hint="ids: path" if ids == "name" else "")


def by_id(rows: Sequence[Any], name: str, where: str, needed: bool = True) -> dict[Any, Any]:
    """Return rows by their id; equal rows count once. Raises DataError: different rows have one id, or one has none.

    Args:
        name: the field that holds the id: ``question_id``.
        where: file and list: ``FILE: annotations``.
        needed: refuse rows without an id; else their key is ``("row", number)``.
    """
    numbers: dict[Any, int] = {}
    for number, row in enumerate(rows):
        lacks = not needed and isinstance(row, dict) and row.get(name) is None
        key = ("row", number) if lacks else value(row, name, (int, str), f"{where}[{number}]")
        first = numbers.setdefault(key, number)
        if rows[first] != row:
            raise twice(name, key, where, f"[{first}] and [{number}]")
    return {key: rows[number] for key, number in numbers.items()}


def check_keys(reader: Any, hashes: Sequence[int], example_at: Callable[[int], Example]) -> None:
    """Refuse a data set in which two examples have one key; the message says where both stand.

    Args:
        hashes: (N,) hashes of the keys, in the order of the examples.
        example_at: returns an example by its row; called where two hashes are equal.
    """
    column = np.array(hashes, np.int64)
    order = np.argsort(column, kind="stable")
    equal = np.flatnonzero(np.diff(column[order]) == 0)
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
    hint = hint or "files merged of several sets need new ids; of a row that stands twice, delete one"
    expected = f"a {what} of its own for every row"
    return DataError(f"Two rows have the {what} {shown(key)}.", where=where, got=got, expected=expected, hint=hint)


# The longest sentence; a longer one is no sentence but a file read as one.
MOST_LETTERS = 1_000_000


def sentence(text: Any, where: str, field: str = "text") -> str:
    """Strip a sentence of a file, its ``field`` at ``where`` (``FILE:line``).

    Raises DataError: it is no text, too long, or holds half of a surrogate pair.
    """
    if not isinstance(text, str):
        got = f"{shown(text)} ({type(text).__name__})"
        raise DataError(f"The field {field!r} is no text.", where=where, got=got, expected="text")
    if len(text) > MOST_LETTERS:
        got, most = f"{len(text):,} letters", f"at most {MOST_LETTERS:,}"
        raise DataError("A sentence is too long.", where=where, got=got, expected=most, hint="split it into several")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        what, got = f"The field {field!r} holds half of a surrogate pair, which is no character.", shown(text)
        raise DataError(what, where=where, got=got, expected="Unicode text", hint="write the file anew from its source")
    return text.strip()


def check_texts(examples: Iterable[Example], where: str) -> None:
    """Check every sentence, label and answer as :func:`sentence` does; the error names the example."""
    for example in examples:
        for text in example.choices if example.text is None else (example.text, *example.choices):
            sentence(text, f"{where}, example {example.key!r}")
        for name, label in example.targets.items():
            for text in label if isinstance(label, Mapping) else (label,):
                if isinstance(text, str) and not text.isascii():
                    sentence(text, f"{where}, example {example.key!r}", name)
