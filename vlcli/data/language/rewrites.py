"""Captions changed in one thing, so that they no longer say what the picture shows.

A rewrite never returns a sentence that still follows from the one it was given: symmetric relations are not turned,
bounds are not loosened, an attribute does not become one that the sentence already names. Sentences with a negation or
with "or" are left alone, since a changed word may well leave them true. What else is in the picture no rewrite knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from vlcli.data.english import part_of_speech
from vlcli.data.language import lexicon
from vlcli.data.language.phrases import Finder, as_phrases, names, plain
from vlcli.errors import ComponentError

REMEMBERED = 50_000
"""How many captions a rewrite keeps its changes of."""


@dataclass(frozen=True)
class Change:
    """Words ``start:stop`` become ``words``.

    Attributes:
        start: first word changed.
        stop: the word after the last.
        words: what stands there instead, without punctuation.
    """

    start: int
    stop: int
    words: tuple[str, ...]


class Rewrite:
    """One way to make a caption false: the base of every rewrite."""

    paper = ""

    def changes(self, words: Sequence[str]) -> list[Change]:
        """Every change of this kind that the sentence allows; called once per sentence that is to be rewritten.

        Args:
            words: of the sentence, lower case, without punctuation at their ends.

        Returns:
            The changes; empty if nothing can be changed.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} changes nothing")

    def __call__(self, text: str, rng: np.random.Generator) -> str | None:
        """One of the changes made, drawn evenly; None where there is none.

        Args:
            text: a caption.
            rng: decides which.
        """
        found = self._possible(text)
        return applied(text.split(), found[int(rng.integers(len(found)))]) if found else None

    def _possible(self, text: str) -> list[Change]:
        known: dict[str, list[Change]] = self.__dict__.setdefault("_remembered", {})
        found = known.get(text)
        if found is None:
            words = [plain(word) for word in text.split()]
            open_ended = not lexicon.NEGATION.isdisjoint(words) or not lexicon.EITHER.isdisjoint(words)
            found = [] if open_ended else self.changes(words)
            if len(known) < REMEMBERED:
                known[text] = found
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_remembered"}


def applied(given: Sequence[str], change: Change) -> str:
    """A sentence with one change made: punctuation and capital stay, "a" and "an" follow the word behind them."""
    old = given[change.start : change.stop]
    front = re.match(r"[^\w']*", old[0])
    back = re.search(r"[^\w']*$", old[-1])
    new = list(change.words)
    if re.search(r"[A-Z]", old[0][:2]) and change.start == 0:
        new[0] = new[0][:1].upper() + new[0][1:]
    new[0] = (front[0] if front else "") + new[0]
    new[-1] += back[0] if back else ""
    words = [*given[: change.start], *new, *given[change.stop :]]
    if change.start:
        words[change.start - 1] = _articled(words[change.start - 1], words[change.start])
    return " ".join(words)


def _articled(word: str, following: str) -> str:
    if word.lower() not in ("a", "an"):
        return word
    return word[0] + ("n" if plain(following)[:1] in tuple("aeiou") else "")


class Attribute(Rewrite):
    """One attribute becomes another that excludes it: a red circle, a blue circle.

    Args:
        groups: lists of words of your own that exclude one another, tried beside the built-in English ones; words of
            one meaning stand in one string: ``[["oak", "birch"], ["big large", "small"]]``.
        builtin: whether the English list is used (colours, sizes, ages, materials, patterns; docs/training.md).
    """

    def __init__(self, *, groups: list[list[str]] = [], builtin: bool = True) -> None:  # noqa: B006 (a schema's default)
        listed = [*groups, *(lexicon.ATTRIBUTE_GROUPS if builtin else ())]
        if any(len(group) < 2 for group in listed) or not listed:
            what = "A group of attributes needs two that exclude one another."
            raise ComponentError(what, where="rewrite other-attribute.groups", got=repr(groups))
        self._others: dict[str, list[str]] = {}
        for group in listed:
            self._add([meaning.lower().split() for meaning in group])

    def _add(self, meanings: Sequence[Sequence[str]]) -> None:
        for meaning in meanings:
            others = [other for words in meanings if words is not meaning for other in words]
            for word in meaning:
                self._others.setdefault(word, []).extend(others)

    def changes(self, words: Sequence[str]) -> list[Change]:
        said = set(words)
        return [
            Change(place, place + 1, (other,))
            for place, word in enumerate(words)
            if word in self._others and not (word == "square" and not _describes(words, place))
            for other in self._others[word]
            if other not in said
        ]


def _describes(words: Sequence[str], place: int) -> bool:
    following = words[place + 1] if place + 1 < len(words) else ""
    return bool(following) and part_of_speech(following) == "NN"


class Names(Rewrite):
    """Two names change places where their relation has a direction: a cup on top of a book, a book on top of a cup.

    Names joined by "and", "with", "next to" and other words that hold both ways stay.
    """

    def changes(self, words: Sequence[str]) -> list[Change]:
        found = []
        spans = names(words)
        for (start, stop), (again, end) in pairwise(spans):
            one, two, between = words[start:stop], words[again:end], words[stop:again]
            if not _has_direction(between) or _bare(one) == _bare(two) or _shown(one) or _shown(two):
                continue
            found.append(Change(start, end, (*two, *between, *one)))
        return found


def _has_direction(between: Sequence[str]) -> bool:
    if not between or any(not word or word in lexicon.SYMMETRIC for word in between):
        return False
    if any(word in lexicon.TOWARDS for word in between) or between[-1] == "of":
        return between[-1] != "of" or any(word in ("left", "right", "front", "top") for word in between)
    return part_of_speech(between[-1]) == "VB" and between[-1].endswith("ing")


def _bare(name: Sequence[str]) -> list[str]:
    return [word for word in name if part_of_speech(word) != "DT"]


def _shown(name: Sequence[str]) -> bool:
    return any(word in lexicon.SHOWN for word in name)


class Relation(Rewrite):
    """A relation is turned round: left of, right of; above, below; more than, fewer than.

    Args:
        opposites: pairs of phrases of your own: ``[["uphill from", "downhill from"]]``.
        builtin: whether the English list is used (docs/training.md).
    """

    def __init__(self, *, opposites: list[tuple[str, str]] = [], builtin: bool = True) -> None:  # noqa: B006
        known = {key: list(found) for key, found in lexicon.opposites().items()} if builtin else {}
        for pair in opposites:
            one, other = _sides(pair)
            known.setdefault(one, []).append(other)
            known.setdefault(other, []).append(one)
        if not known:
            raise ComponentError(
                "There is no relation to turn round.", where="rewrite turned-relation", hint="opposites: ..."
            )
        self._known = {tuple(key.split()): found for key, found in known.items()}
        self._finder = Finder(as_phrases(known))

    def changes(self, words: Sequence[str]) -> list[Change]:
        return [
            Change(start, stop, tuple(other.split()))
            for start, stop in self._finder.find(words)
            if _counts(words, start, stop)
            for other in self._known[tuple(words[start:stop])]
        ]


def _sides(pair: tuple[str, str]) -> list[str]:
    sides = [" ".join(phrase) for phrase in as_phrases(pair)]
    if len(sides) != 2 or sides[0] == sides[1]:
        what = "Two different phrases turn one another round."
        raise ComponentError(what, where="rewrite turned-relation.opposites", got=repr(list(pair)))
    return sides


def _counts(words: Sequence[str], start: int, stop: int) -> bool:
    found = words[start:stop]
    before = words[start - 1] if start else ""
    if found[0] in ("more", "fewer") and len(found) == 1:
        limit = before in ("no", "not", "at")
        return not limit and "than" in words[stop:]
    return not (found[0] == "over" and before in ("all", "and"))


class Number(Rewrite):
    """A number changes: two dogs, three dogs. Bounds are turned into what contradicts them: at least, fewer than.

    Args:
        most: the largest number that is written; others lie at most two away from the one given.
    """

    def __init__(self, *, most: int = 12) -> None:
        if not 3 <= most <= 99:
            raise ComponentError(
                "The largest number must lie between 3 and 99.", where="rewrite other-number", got=str(most)
            )
        self.most = most

    def changes(self, words: Sequence[str]) -> list[Change]:
        found: list[Change] = []
        for place, word in enumerate(words):
            value = _value(word)
            if value is None:
                continue
            bound = tuple(words[max(place - 2, 0) : place])
            if bound in _BOUNDS:
                found.append(Change(place - 2, place, _BOUNDS[bound]))
            elif value >= 2 and not (
                place and words[place - 1] in ("least", "most", "than", "about", "over", "nearly")
            ):
                near = [n for n in range(max(2, value - 2), min(self.most, value + 2) + 1) if n != value]
                found += [Change(place, place + 1, (_written(other, word),)) for other in near]
        return found


_BOUNDS = {
    ("at", "least"): ("fewer", "than"),
    ("fewer", "than"): ("at", "least"),
    ("at", "most"): ("more", "than"),
    ("more", "than"): ("at", "most"),
}
_LOOSE = ("least", "most", "than", "about", "over", "nearly", "almost")


def _value(word: str) -> int | None:
    if word in lexicon.NUMBERS:
        return lexicon.NUMBERS.index(word)
    return int(word) if re.fullmatch(r"\d{1,2}", word) else None


def _written(value: int, like: str) -> str:
    return str(value) if like.isdigit() or value >= len(lexicon.NUMBERS) else lexicon.NUMBERS[value]
