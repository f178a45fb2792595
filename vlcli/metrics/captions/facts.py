"""Checks captions against annotated things: kinds and attributes, their number, and where they are.

Sentences are plain: a noun (attributes, then a kind: "small red circle") behind an article, a number or "no",
"left of", "right of", "above" or "below" between two nouns, and "at the top left" or "in the middle" behind one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

MARGIN = 0.1  # of the picture's side: nearer centres are neither left nor right, above nor below one another
EDGES = (0.38, 0.62)  # shares of a side where left ends and right begins, top ends and bottom begins
_COUNTED = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBERS = {word: number for number, word in enumerate(_COUNTED)} | {"a": 1, "an": 1, "the": 1, "without": 0}
RELATIONS = ("left", "right", "above", "below")
# The axis (0: x) and the side (0: where it begins)
PLACES = {"top": (1, 0), "bottom": (1, 1), "left": (0, 0), "right": (0, 1)}
MIDDLE = ("middle", "center", "centre")


@dataclass(frozen=True)
class Thing:
    """An annotated thing; ``x`` and ``y`` are its centre as shares of the picture's width and height."""

    kind: str
    attributes: frozenset[str] = frozenset()
    x: float = 0.5
    y: float = 0.5


@dataclass(frozen=True)
class Named:
    """A noun, words ``start`` to ``stop``: ``count`` is exact from two on, 0 for "no"; ``kind`` None: any ("shape")."""

    kind: str | None
    attributes: frozenset[str]
    count: int
    start: int
    stop: int

    def of(self, thing: Thing) -> bool:
        return (self.kind is None or self.kind == thing.kind) and self.attributes <= thing.attributes


@dataclass
class ClaimTruth:
    """Whether the claims of a caption are true; None for a kind of claim that the caption does not make.

    Attributes:
        look: what it names by kind or attribute is in the picture, as often as it says, and what it says is missing is.
        number: numbers in words are exact.
        place: every place and relation holds for things of that look.
    """

    look: bool | None = None
    number: bool | None = None
    place: bool | None = None


class Claims:
    """Reads captions in the words of some annotations; "shape" is a noun that names no kind."""

    def __init__(self, kinds: Sequence[str], attributes: Sequence[str]) -> None:
        self.kinds: dict[str, str | None] = {}
        for name in (*kinds, "shape"):
            self.kinds |= dict.fromkeys((name, f"{name}s", f"{name}es"), None if name == "shape" else name)
        self.attributes = set(attributes)

    def check(self, caption: str, things: Sequence[Thing]) -> ClaimTruth:
        words = re.findall(r"[a-z]+", caption.lower())
        nouns = self.nouns(words)
        said = [(noun.count, sum(noun.of(thing) for thing in things)) for noun in nouns]  # and how many there are
        truth = ClaimTruth(place=self._placed(words, nouns, things))
        if any(noun.count for noun in nouns if noun.kind is not None or noun.attributes):
            truth.look = all(there >= count if count else not there for count, there in said)
            truth.look = truth.look and _distinct(nouns, things)
        if exact := [there == count for count, there in said if count > 1]:
            truth.number = all(exact)
        return truth

    def nouns(self, words: Sequence[str]) -> list[Named]:
        nouns: list[Named] = []
        for index, word in enumerate(words):
            if word in self.kinds:
                start = index
                while start and words[start - 1] in self.attributes:
                    start -= 1
                attributes = frozenset(words[start:index])
                nouns.append(Named(self.kinds[word], attributes, _number(words[:start]), start, index + 1))
        return nouns

    @staticmethod
    def _placed(words: Sequence[str], nouns: Sequence[Named], things: Sequence[Thing]) -> bool | None:
        held = []
        for noun, after in zip_longest(nouns, nouns[1:]):
            between = words[noun.stop : len(words) if after is None else after.start]
            mine = [thing for thing in things if noun.of(thing)]
            relation = _relation(between)
            if after is not None and relation is not None:
                theirs = [thing for thing in things if after.of(thing)]
                held.append(any(_stands(a, relation, b) for a in mine for b in theirs if a is not b))
            elif sides := [word for word in between if word in PLACES or word in MIDDLE]:
                held.append(any(all(_lies(thing, word, len(sides)) for word in sides) for thing in mine))
        return all(held) if held else None


def _number(before: Sequence[str]) -> int:
    word = before[-1] if before else ""
    return 0 if word in ("a", "an") and before[-2:-1] == ["without"] else NUMBERS.get(word, 1)


def _relation(words: Sequence[str]) -> str | None:
    pairs = zip_longest(words, words[1:])
    return next((w for w, after in pairs if w in RELATIONS and (after == "of" or w not in PLACES)), None)


def _distinct(nouns: Sequence[Named], things: Sequence[Thing]) -> bool:
    single = [noun for noun in nouns if noun.count == 1]

    def fits(number: int, taken: frozenset[int]) -> bool:
        if number == len(single):
            return True
        free = (i for i, thing in enumerate(things) if i not in taken and single[number].of(thing))
        return any(fits(number + 1, taken | {i}) for i in free)

    return fits(0, frozenset())


def _stands(one: Thing, relation: str, other: Thing) -> bool:
    across, down = other.x - one.x, other.y - one.y
    return {"left": across, "right": -across, "above": down, "below": -down}[relation] >= MARGIN


def _lies(thing: Thing, word: str, words: int) -> bool:
    low, high = EDGES
    if word in MIDDLE:
        return words > 1 or all(low <= value <= high for value in (thing.x, thing.y))
    axis, side = PLACES[word]
    value = (thing.x, thing.y)[axis]
    return value > high if side else value < low


def fact_metrics(truths: Sequence[ClaimTruth]) -> dict[str, float]:
    """Return the share of right captions by claim, of those that make it; ``right/look`` and ``named/place`` of all."""
    shares = {"right/look": sum(truth.look is True for truth in truths) / max(len(truths), 1)}
    for name in ("number", "place"):
        claimed = [value for truth in truths if (value := getattr(truth, name)) is not None]
        if claimed:
            shares[f"right/{name}"] = sum(claimed) / len(claimed)
    shares["named/place"] = sum(truth.place is not None for truth in truths) / max(len(truths), 1)
    return shares
