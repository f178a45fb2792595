"""Words of a sentence, and the runs of them that belong together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from vlcli.data.english import FUNCTION_WORDS, part_of_speech
from vlcli.data.language.lexicon import ATTRIBUTE, NUMBERS, OPPOSITES, PLACE, PLACE_PHRASES
from vlcli.recipe.patterns import Searcher

Span = tuple[int, int]
"""A run of words: the first, and the first behind it."""
_EDGE = re.compile(r"^[^\w']+|[^\w']+$")
_ADJECTIVES = ATTRIBUTE | frozenset(NUMBERS) | {"single", "several", "few", "many"}


def plain(word: str) -> str:
    """Lower case, without the punctuation at its ends."""
    return _EDGE.sub("", word.lower())


class Finder:
    """Looks for phrases.

    Args:
        known: phrases as words, lower case.
    """

    def __init__(self, known: Iterable[Sequence[str]]) -> None:
        self._by_first: dict[str, list[tuple[str, ...]]] = {}
        for phrase in sorted({tuple(one) for one in known}, key=lambda one: (-len(one), one)):
            self._by_first.setdefault(phrase[0], []).append(phrase)

    def find(self, words: Sequence[str]) -> list[Span]:
        """Spans of plain ``words``, from the left; of several at one place the longest."""
        found, place = [], 0
        while place < len(words):
            fitting = self._by_first.get(words[place], [])
            length = next((len(p) for p in fitting if tuple(words[place : place + len(p)]) == p), 0)
            if length:
                found.append((place, place + length))
            place += max(length, 1)
        return found


def is_verb_left(words: Sequence[str], place: int) -> bool:
    """Whether ``left`` at this place is the verb ("has left the room") and not a side."""
    before = words[place - 1] if place else ""
    after = words[place + 1] if place + 1 < len(words) else ""
    sides = ("of", "side", "hand", "corner", "edge", "half", "picture", "image", "one", "arm", "foot", "leg", "eye")
    leads = ("the", "to", "on", "at", "far", "upper", "lower", "top", "bottom", "is", "are", "its", "his", "her", "and")
    return after not in sides and before not in leads and place > 0


def phrases(words: Sequence[str]) -> list[Span]:
    """The phrases of a sentence that say one thing: relations ("to the left of") and names ("a small red circle").

    Args:
        words: plain words (see :func:`plain`).

    Returns:
        Runs of two words or more and names of one, in order; what is in none stands alone.
    """
    relations = _RELATIONS.find(words)
    covered = {place for start, stop in relations for place in range(start, stop)}
    return sorted([*relations, *(name for name in names(words) if covered.isdisjoint(range(*name)))])


def names(words: Sequence[str]) -> list[Span]:
    """Names of things with their articles, numbers and attributes: "the two small red circles"."""
    groups = [_group(word) for word in words]
    found, place = [], 0
    while place < len(words):
        start, stop = place, place
        while stop < len(words) and groups[stop] == "DT":
            stop += 1
        while stop < len(words) and groups[stop] == "JJ":
            stop += 1
        nouns = stop
        while stop < len(words) and groups[stop] == "NN":
            stop += 1
        if stop > nouns:
            found.append((start, stop))
        place = max(stop, place + 1)
    return found


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


def _relations() -> Finder:
    sides = [side for pair in OPPOSITES for side in pair]
    return Finder(side.split() for side in {*PLACE_PHRASES, *sides} if " " in side and not side.startswith("the "))


_RELATIONS = _relations()


def as_phrases(texts: Iterable[str]) -> list[tuple[str, ...]]:
    """Strings as phrases of plain words; empty ones are left out."""
    split = (tuple(filter(None, map(plain, text.split()))) for text in texts)
    return [phrase for phrase in split if phrase]


def matches(words: Sequence[str], patterns: Sequence[Searcher]) -> list[Span]:
    """Whole words that regular expressions find in the sentence, in full."""
    text = ""
    starts: dict[int, int] = {}
    stops: dict[int, int] = {}
    for place, word in enumerate(words):
        text += " " if place else ""
        starts[len(text)] = place
        text += word
        stops[len(text)] = place + 1
    hits = [span for pattern in patterns for span in pattern.spans(text)]
    return [(starts[a], stops[b]) for a, b in hits if a in starts and b in stops and a < b]
