"""Captions as words, in the manner of the Penn Treebank, punctuation left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

Words = Sequence[str]
Grams = Counter[tuple[str, ...]]

DROPPED = frozenset(["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "..", "...", ";"])
"""What the COCO caption evaluation leaves out after tokenising; brackets stay there, as their names are lower-cased."""

_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "{": "-lcb-", "}": "-rcb-", "[": "-lsb-", "]": "-rsb-"}
_TOGETHER = {
    "cannot": ("can", "not"),
    "gonna": ("gon", "na"),
    "gotta": ("got", "ta"),
    "wanna": ("wan", "na"),
    "lemme": ("lem", "me"),
    "gimme": ("gim", "me"),
}
_ABBREVIATION = (
    r"(?:(?:[a-z]\.){2,}|[a-z]\.(?=\s+[a-z])|"
    r"(?:mr|mrs|ms|dr|st|jr|sr|vs|ave|rd|blvd|inc|ltd|corp|ky)\.)(?![a-z0-9])"
)
_NUMBER = r"\d+(?:[.,:/]\d+)*(?:st|nd|rd|th|s)?(?![a-z0-9])"
_LETTERS = r"[a-z0-9\u00c0-\u024f]+"
_CLITIC = r"'(?:s|d|m|ll|re|ve)(?![a-z])"
_WORD = rf"{_LETTERS}(?:(?:[-_/&.]|(?!{_CLITIC})')(?={_LETTERS}){_LETTERS})*"
_TOKEN = re.compile(
    rf"n't(?![a-z])|{_ABBREVIATION}|{_NUMBER}|{_WORD}|{_CLITIC}|\.{{2,}}|-{{2,}}|``|''|[^\s\w]|\S", re.IGNORECASE
)
_NEGATION = re.compile(r"([a-z]+)n't(?![a-z])")


def tokenize(caption: str) -> list[str]:
    """The words of a caption, lower-cased, contractions split, punctuation dropped.

    Close to Stanford's PTB tokenizer with ``-lowerCase``, as the COCO caption evaluation calls it, without Java.
    """
    text = caption.lower().replace("\n", " ").replace("\u2019", "'").replace("\u2018", "'")
    text = text.replace("\u201c", " '' ").replace("\u201d", " '' ").replace('"', " '' ")
    text = _NEGATION.sub(r"\1 n't", text)
    found: list[str] = []
    for token in _TOKEN.findall(text):
        word = _BRACKETS.get(token, token)
        found += _TOGETHER.get(word, (word,))
    return [word for word in found if word not in DROPPED]


def grams(words: Words, longest: int = 4) -> Grams:
    """How often every run of one to ``longest`` words occurs."""
    return Counter(tuple(words[i : i + n]) for n in range(1, longest + 1) for i in range(len(words) - n + 1))
