"""Reads the words for an open-vocabulary model: a list, a file, or the class names of the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vlcli.data import read_vocabulary
from vlcli.errors import DataError, UsageError
from vlcli.images import Labels

Words = tuple[str, ...] | str | None
"""A recipe's ``words``: a list, the path of a file, or None for the class names of the data."""


def chosen_words(words: Words, who: str) -> tuple[str, ...] | None:
    """Return the words of a recipe; None where the class names of the data are to be used.

    Raises:
        UsageError: the list or the file has no words.
        DataError: there is no such file.
    """
    if words is None:
        return None
    if isinstance(words, str):
        path = Path(words)
        if not path.is_file():
            hint = "a list of words stands in brackets: words: [red circle, cat]"
            raise DataError("The file of words does not exist.", where=words, expected="one word a line", hint=hint)
        return checked([one.word for one in read_vocabulary(path)], who, words)
    return checked(words, who, "words")


def words_of_data(labels: Labels, who: str) -> tuple[str, ...]:
    """Return the class names of the data as words."""
    return checked(labels.classes, who, "the class names of the data")


def checked(words: Sequence[str], who: str, where: str) -> tuple[str, ...]:
    """Return words without blanks around them, each once."""
    known = tuple(dict.fromkeys(text for word in words if (text := " ".join(str(word).split()))))
    if not known:
        got = f"{len(words)} words, all of them blank" if words else "no words"
        expected = "words: [red circle, cat], words: FILE with one word a line, or data whose classes have names"
        raise UsageError(f"The extractor {who} has no words to look for.", where=where, got=got, expected=expected)
    return known
