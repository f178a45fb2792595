"""Rewrites captions in one respect so that they contradict the original.

Symmetric relations are not turned, bounds are not loosened, an attribute does not become one that the sentence already
names. Sentences with a negation or with "or" are left alone, since a changed word may leave them true. What else is in
the picture is not known.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np

from vlcli.data.english import part_of_speech
from vlcli.data.language import roles
from vlcli.data.language.roles import NUMBERS, plain
from vlcli.errors import ComponentError

# Captions whose changes a rewrite keeps.
REMEMBERED = 50_000


@dataclass(frozen=True)
class Change:
    """Words ``start:stop`` become ``words``, which have no punctuation."""

    start: int
    stop: int
    words: tuple[str, ...]


class Rewrite:
    """Base class of rewrites, each one way to make a caption false."""

    paper = ""

    def changes(self, words: Sequence[str]) -> list[Change]:
        """Return every change of this kind that the sentence allows; called once per sentence that is to be rewritten.

        Args:
            words: of the sentence, lower case, without punctuation at their ends.

        Returns:
            The changes; empty if nothing can be changed.
        """
        raise NotImplementedError(f"{type(self).__name__} changes nothing")

    def __call__(self, text: str, rng: np.random.Generator) -> str | None:
        """Make one of the changes to a caption, drawn evenly; None where there is none."""
        known: dict[str, list[Change]] = self.__dict__.setdefault("_remembered", {})
        changes = known.get(text)
        if changes is None:
            words = [plain(word) for word in text.split()]
            changes = [] if (roles.NEGATION | roles.EITHER).intersection(words) else self.changes(words)
            if len(known) < REMEMBERED:
                known[text] = changes
        return applied(text.split(), changes[int(rng.integers(len(changes)))]) if changes else None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_remembered"}


def applied(sentence: Sequence[str], change: Change) -> str:
    """Make one change to a sentence: punctuation and capital stay, "a" and "an" follow the word behind them."""
    old = sentence[change.start : change.stop]
    new = list(change.words)
    if re.search(r"[A-Z]", old[0][:2]) and change.start == 0:
        new[0] = new[0][:1].upper() + new[0][1:]
    new[0] = re.sub(r"[\w'].*", "", old[0]) + new[0]
    new[-1] += re.sub(r".*[\w']", "", old[-1])
    words = [*sentence[: change.start], *new, *sentence[change.stop :]]
    before = change.start - 1
    if change.start and words[before].lower() in ("a", "an"):
        words[before] = words[before][0] + ("n" if plain(words[change.start])[:1] in tuple("aeiou") else "")
    return " ".join(words)


class Attribute(Rewrite):
    """One attribute becomes another that excludes it: a red circle, a blue circle.

    Args:
        groups: lists of words of your own that exclude one another, tried beside the built-in English ones; words of
            one meaning stand in one string: ``[["oak", "birch"], ["big large", "small"]]``.
        builtin: whether the English list is used (colours, sizes, ages, materials, patterns; docs/training.md).
    """

    def __init__(self, *, groups: list[list[str]] = [], builtin: bool = True) -> None:  # noqa: B006 (a schema's default)
        listed = [*groups, *(roles.ATTRIBUTE_GROUPS if builtin else ())]
        if any(len(group) < 2 for group in listed) or not listed:
            what = "A group of attributes needs two that exclude one another."
            raise ComponentError(what, where="rewrite other-attribute.groups", got=repr(groups))
        self._others: dict[str, list[str]] = {}
        for group in listed:
            meanings = [meaning.lower().split() for meaning in group]
            for meaning in meanings:
                others = [other for words in meanings if words is not meaning for other in words]
                for word in meaning:
                    self._others.setdefault(word, []).extend(others)

    def changes(self, words: Sequence[str]) -> list[Change]:
        changes = []
        for index, (word, following) in enumerate(zip_longest(words, words[1:], fillvalue="")):
            if word == "square" and (not following or part_of_speech(following) != "NN"):
                continue  # a thing, not an attribute
            others = (other for other in self._others.get(word, ()) if other not in words)
            changes += [Change(index, index + 1, (other,)) for other in others]
        return changes


class Names(Rewrite):
    """Two names are swapped where their relation has a direction: a cup on top of a book, a book on top of a cup.

    Names joined by "and", "with", "next to" and other symmetric words stay.
    """

    def changes(self, words: Sequence[str]) -> list[Change]:
        changes = []
        for (start, stop), (again, end) in pairwise(roles.names(words)):
            one, two, between = words[start:stop], words[again:end], words[stop:again]
            of_picture = not roles.SHOWN.isdisjoint((*one, *two))
            if _has_direction(between) and _without_articles(one) != _without_articles(two) and not of_picture:
                changes.append(Change(start, end, (*two, *between, *one)))
        return changes


def _has_direction(between: Sequence[str]) -> bool:
    if not between or any(not word or word in roles.SYMMETRIC for word in between):
        return False
    if any(word in roles.TOWARDS for word in between) or between[-1] == "of":
        return between[-1] != "of" or any(word in ("left", "right", "front", "top") for word in between)
    return part_of_speech(between[-1]) == "VB" and between[-1].endswith("ing")


def _without_articles(name: Sequence[str]) -> list[str]:
    return [word for word in name if part_of_speech(word) != "DT"]


class Relation(Rewrite):
    """A relation is turned round: left of, right of; above, below; more than, fewer than.

    Args:
        opposites: pairs of phrases of your own: ``[["uphill from", "downhill from"]]``.
        builtin: whether the English list is used (docs/training.md).
    """

    def __init__(self, *, opposites: list[tuple[str, str]] = [], builtin: bool = True) -> None:  # noqa: B006
        added = [[" ".join(phrase) for phrase in roles.as_phrases(pair)] for pair in opposites]
        if wrong := [
            pair for pair, sides in zip(opposites, added, strict=True) if not len(sides) == len({*sides}) == 2
        ]:
            what = "Two different phrases turn one another round."
            raise ComponentError(what, where="rewrite turned-relation.opposites", got=repr(list(wrong[0])))
        known = roles.opposites([*(roles.OPPOSITES if builtin else ()), *added])
        if not known:
            what = "There is no relation to turn round."
            raise ComponentError(what, where="rewrite turned-relation", hint="opposites: ...")
        self._known = {tuple(key.split()): others for key, others in known.items()}
        self._finder = roles.Finder(self._known)

    def changes(self, words: Sequence[str]) -> list[Change]:
        return [
            Change(start, stop, tuple(other.split()))
            for start, stop in self._finder.find(words)
            if _is_relation(words, start, stop)
            for other in self._known[tuple(words[start:stop])]
        ]


def _is_relation(words: Sequence[str], start: int, stop: int) -> bool:
    before = words[start - 1] if start else ""
    if words[start] in ("more", "fewer") and stop - start == 1:
        return before not in ("no", "not", "at") and "than" in words[stop:]
    return words[start] != "over" or before not in ("all", "and")


class Number(Rewrite):
    """A number changes: two dogs, three dogs. Bounds are turned into what contradicts them: at least, fewer than.

    Args:
        most: the largest number that is written; others differ by at most two from the caption's.
    """

    def __init__(self, *, most: int = 12) -> None:
        if not 3 <= most <= 99:
            what = "The largest number must lie between 3 and 99."
            raise ComponentError(what, where="rewrite other-number", got=str(most))
        self.most = most

    def changes(self, words: Sequence[str]) -> list[Change]:
        changes: list[Change] = []
        for index, word in enumerate(words):
            if word not in NUMBERS and not re.fullmatch(r"\d{1,2}", word):
                continue
            value = NUMBERS.index(word) if word in NUMBERS else int(word)
            bound = tuple(words[max(index - 2, 0) : index])
            if bound in _BOUNDS:
                changes.append(Change(index - 2, index, _BOUNDS[bound]))
            elif value >= 2 and not (index and words[index - 1] in _LOOSE):
                near = [n for n in range(max(2, value - 2), min(self.most, value + 2) + 1) if n != value]
                written = (str(n) if word.isdigit() or n >= len(NUMBERS) else NUMBERS[n] for n in near)
                changes += [Change(index, index + 1, (other,)) for other in written]
        return changes


_BOUNDS = {
    ("at", "least"): ("fewer", "than"),
    ("fewer", "than"): ("at", "least"),
    ("at", "most"): ("more", "than"),
    ("more", "than"): ("at", "most"),
}
_LOOSE = ("least", "most", "than", "about", "over", "nearly")
