"""Finds phrases and names in the words of a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

from vlcli.data.english import FUNCTION_WORDS, part_of_speech
from vlcli.data.language.lexicon import ATTRIBUTE, NUMBERS, OPPOSITES, PLACE, PLACE_PHRASES
from vlcli.recipe.patterns import Searcher

Span = tuple[int, int]
"""First word of a run, and the word after its last."""
_EDGE = re.compile(r"^[^\w']+|[^\w']+$")
_NAME = re.compile("d*j*n+")
_ADJECTIVES = ATTRIBUTE | frozenset(NUMBERS) | {"single", "several", "few", "many"}


def plain(word: str) -> str:
    """Return a word in lower case without the punctuation at its ends."""
    return _EDGE.sub("", word.lower())


class Finder:
    """Finds known phrases, given as lower-case words."""

    def __init__(self, known: Iterable[Sequence[str]]) -> None:
        self._by_first: dict[str, list[tuple[str, ...]]] = {}
        for phrase in sorted({tuple(one) for one in known}, key=lambda one: (-len(one), one)):
            self._by_first.setdefault(phrase[0], []).append(phrase)

    def find(self, words: Sequence[str]) -> list[Span]:
        """Return the spans of phrases in plain ``words``, from the left; of several at one word the longest."""
        spans, start = [], 0
        while start < len(words):
            fitting = self._by_first.get(words[start], [])
            length = next((len(p) for p in fitting if tuple(words[start : start + len(p)]) == p), 0)
            if length:
                spans.append((start, start + length))
            start += max(length, 1)
        return spans


def is_verb_left(words: Sequence[str], index: int) -> bool:
    """Whether ``left`` at this index is the verb ("has left the room") and not a side."""
    before = words[index - 1] if index else ""
    after = words[index + 1] if index + 1 < len(words) else ""
    sides = ("of", "side", "hand", "corner", "edge", "half", "picture", "image", "one", "arm", "foot", "leg", "eye")
    leads = ("the", "to", "on", "at", "far", "upper", "lower", "top", "bottom", "is", "are", "its", "his", "her", "and")
    return after not in sides and before not in leads and index > 0


def phrases(words: Sequence[str]) -> list[Span]:
    """Return the relations ("to the left of") and names ("a small red circle") in plain words, in order.

    Relations have two words or more, names one or more; other words are in no phrase.
    """
    relations = _RELATIONS.find(words)
    covered = {index for start, stop in relations for index in range(start, stop)}
    return sorted([*relations, *(name for name in names(words) if covered.isdisjoint(range(*name)))])


def names(words: Sequence[str]) -> list[Span]:
    """Return names of things with their articles, numbers and attributes: "the two small red circles"."""
    letters = "".join({"DT": "d", "JJ": "j", "NN": "n"}.get(_group(word), " ") for word in words)
    return [match.span() for match in _NAME.finditer(letters)]


@lru_cache(maxsize=65536)
def _group(word: str) -> str:
    if not word or word == "least":
        return "other"
    if word == "square":  # a thing more often than an attribute, and where it is one, part of a name all the same
        return "NN"
    if word in _ADJECTIVES or word.isdigit():
        return "JJ"
    if word in PLACE:
        return "IN"
    if word in FUNCTION_WORDS and part_of_speech(word) != "DT":
        return "other"
    return part_of_speech(word)


_RELATIONS = Finder(
    side.split()
    for side in (*PLACE_PHRASES, *(side for pair in OPPOSITES for side in pair))
    if " " in side and not side.startswith("the ")
)


def as_phrases(texts: Iterable[str]) -> list[tuple[str, ...]]:
    """Split strings into phrases of plain words; empty ones are left out."""
    split = (tuple(filter(None, map(plain, text.split()))) for text in texts)
    return [phrase for phrase in split if phrase]


def matches(words: Sequence[str], patterns: Sequence[Searcher]) -> list[Span]:
    """Return the matches of regular expressions in the sentence that begin and end with a word."""
    ends = list(accumulate(len(word) + 1 for word in words))
    starts = {end - len(word) - 1: index for index, (end, word) in enumerate(zip(ends, words, strict=True))}
    stops = {end - 1: index + 1 for index, end in enumerate(ends)}
    hits = [span for pattern in patterns for span in pattern.spans(" ".join(words))]
    return [(starts[a], stops[b]) for a, b in hits if a in starts and b in stops and a < b]
