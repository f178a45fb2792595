"""Checks the sentences, labels and answers of examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vlcli.data.sample import Example
from vlcli.errors import DataError, shown

# The longest sentence; a longer one is no sentence but a file read as one.
MOST_LETTERS = 1_000_000


def sentence(text: Any, where: str, field: str = "text") -> str:
    """Check that a value of a file is a sentence, and strip it.

    Args:
        text: the value.
        where: ``file:line`` or the like, for the message.
        field: the value's name in the file.

    Raises:
        DataError: it is no text, too long, or holds half of a surrogate pair.
    """
    if not isinstance(text, str):
        got = f"{shown(text)} ({type(text).__name__})"
        raise DataError(f"The field {field!r} is no text.", where=where, got=got, expected="text")
    if len(text) > MOST_LETTERS:
        got, most = f"{len(text):,} letters", f"at most {MOST_LETTERS:,}"
        raise DataError("A sentence is too long.", where=where, got=got, expected=most, hint="split it into several")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise DataError(
            f"The field {field!r} holds half of a surrogate pair, which is no character.",
            where=where,
            got=shown(text),
            expected="Unicode text",
            hint="write the file anew from its source",
        )
    return text.strip()


def check_texts(examples: Iterable[Example], where: str) -> None:
    """Check every sentence, label and answer of ``examples``.

    Raises:
        DataError: one is not; the message names the example.
    """
    for example in examples:
        if example.text is not None:
            sentence(example.text, f"{where}, example {example.key!r}")
        for text in example.choices:
            sentence(text, f"{where}, example {example.key!r}")
        for name, value in example.targets.items():
            for text in value if isinstance(value, Mapping) else (value,):
                if isinstance(text, str) and not text.isascii():
                    sentence(text, f"{where}, example {example.key!r}", name)
