"""Finds the words of a sentence with one role (place, number, attribute, noun), phrases and names.

A word of several senses is listed where captions mostly use it in this one, and otherwise looked at in its context
(``left``). Everything is lower case; lists of phrases are separated by commas.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, islice

from vlcli.data.english import FUNCTION_WORDS, part_of_speech
from vlcli.errors import ComponentError
from vlcli.recipe.patterns import Searcher

_PLACE = """
    above below beneath underneath under over behind beside between near nearby inside outside within atop against
    opposite around across along alongside among amid amidst left right top bottom middle center centre corner front
    back side edge upper lower leftmost rightmost topmost bottommost foreground background higher uppermost
    lowermost central far next adjacent
"""
_PLACE_PHRASES = """
    to the left of, to the right of, on the left of, on the right of, on the left side of, on the right side of,
    left of, right of, on top of, in front of, in back of, at the top of, at the bottom of, in the middle of,
    in the center of, in the centre of, in between, next to, close to, far from, away from, adjacent to,
    on the left, on the right, to the left, to the right, at the top, at the bottom, in the middle, in the center,
    in the centre, at the left, at the right, at the back, at the front, on the side of, in the corner of,
    in the foreground, in the background, in the corner
"""
_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve"
_QUANTITIES = "no none single pair couple dozen several few fewer more most many less half"
_NUMBER_PHRASES = """
    a couple of, a pair of, at least, at most, more than, fewer than, less than, a few, exactly
"""
# A line is a group, a comma stands between what excludes one another, words of one meaning stand together.
_ATTRIBUTES = """
    red, green, blue, yellow, orange, purple violet, pink, brown, black, white, gray grey silver
    large big huge giant enormous, small little tiny miniature
    long, short
    tall high, short low
    wide broad, narrow
    thick, thin slim
    young, old elderly
    new modern, old ancient antique
    wet, dry
    full, empty
    open, closed shut
    clean, dirty muddy dusty
    bright sunny, dark
    hot, cold frozen icy
    wooden, metal metallic steel, plastic, glass, stone, brick, leather
    round circular, square, rectangular, triangular, oval
    striped, spotted dotted, plaid checkered, floral
    smooth, rough
    soft, hard
    straight, curved curly bent
    male, female
    happy, sad
    cooked grilled baked fried, raw
    indoor, outdoor
"""
_OPPOSITES = """
    left of: right of, above: below, over: under, in front of: behind, on top of: underneath, on top of: under,
    inside: outside, beneath: above, underneath: above, at the top: at the bottom,
    on the left: on the right, to the left: to the right, at the left: at the right,
    in the foreground: in the background, left side: right side, top left: bottom right, top right: bottom left,
    upper left: lower right, upper right: lower left, top of: bottom of, leftmost: rightmost, topmost: bottommost,
    the left: the right, the top: the bottom, higher than: lower than, larger than: smaller than,
    bigger than: smaller than, taller than: shorter than, longer than: shorter than, older than: younger than,
    wider than: narrower than, darker than: brighter than, more: fewer, far from: close to, far from: near
"""
_TOWARDS = """
    above below beneath underneath under over behind inside outside atop on onto into in than through toward towards
    after before off
"""
_SYMMETRIC = """
    and or with beside near nearby next by between together against along alongside opposite adjacent close touching
    meeting facing matching kissing hugging joining surrounding like as same equal both while but besides around among
    amid apart different similar beyond each other
"""
_SHOWN = """
    picture pictures photo photos photograph photographs image images view shot scene drawing total background
    foreground
"""
_NEGATION = "no not none never nobody nothing without neither nor n't isn't aren't doesn't don't"


def _phrases(text: str) -> list[str]:
    return [" ".join(phrase.split()) for phrase in text.split(",")]


# Single words of place. `on`, `in` and `at` are left out: the sentence alone gives them away.
PLACE = frozenset(_PLACE.split())
PLACE_PHRASES = _phrases(_PLACE_PHRASES)
# Number words in the order of their values.
NUMBERS = _NUMBERS.split()
# Words of number, digits aside.
NUMBER = frozenset([*NUMBERS, *_QUANTITIES.split()])
NUMBER_PHRASES = _phrases(_NUMBER_PHRASES)
# Attributes that exclude one another: within a group, each string holds words of one meaning.
ATTRIBUTE_GROUPS = tuple(tuple(_phrases(line)) for line in _ATTRIBUTES.strip().splitlines())
# Words of attribute; `square` is a thing more often than an attribute.
ATTRIBUTE = frozenset(word for group in ATTRIBUTE_GROUPS for words in group for word in words.split()) - {"square"}
# Pairs of opposite relations. `more` and `fewer` count only where `than` follows.
OPPOSITES = [tuple(side.strip() for side in pair.split(":")) for pair in _phrases(_OPPOSITES)]
# Relations with a direction: they do not hold with the two names swapped.
TOWARDS = frozenset(_TOWARDS.split())
# Words without a direction, and words that join two statements.
SYMMETRIC = frozenset(_SYMMETRIC.split())
# Names of the picture itself, and other names that are no things in it.
SHOWN = frozenset(_SHOWN.split())
NEGATION = frozenset(_NEGATION.split())
# With one of these, a sentence may stay true although a word changes.
EITHER = frozenset(["or", "either"])


def opposites(pairs: Iterable[Sequence[str]] = OPPOSITES) -> dict[str, list[str]]:
    """Return each phrase of pairs of opposites with its opposites."""
    table: dict[str, list[str]] = defaultdict(list)
    for one, other in pairs:
        table[one].append(other)
        table[other].append(one)
    return dict(table)


class Role:
    """Base class of roles."""

    paper = ""

    def spans(self, words: Sequence[str]) -> list[Span]:
        """Return positions of the words with this role; called once per sentence whose words are masked by role.

        Args:
            words: of a sentence, lower case and without punctuation at their ends; empty where nothing was left.

        Returns:
            Runs of words that belong together; they may overlap those of another role.
        """
        raise NotImplementedError(f"{type(self).__name__} finds no words")


class Listed(Role):
    """Words and phrases of a list, and matches of regular expressions."""

    def __init__(self, words: Iterable[str], patterns: Sequence[Searcher] = ()) -> None:
        self._finder, self._patterns = Finder(as_phrases(words)), list(patterns)

    def spans(self, words: Sequence[str]) -> list[Span]:
        spans = self._finder.find(words)
        covered = {index for span in spans for index in range(*span)}
        for span in matches(words, self._patterns):
            if covered.isdisjoint(range(*span)):
                spans.append(span)
                covered.update(range(*span))
        return sorted(spans)


class Place(Listed):
    """Words of place in English: left of, above, in the middle, behind, next to (the lists are in docs/training.md).

    ``left`` as a verb ("has left the room") does not count.
    """

    def __init__(self) -> None:
        super().__init__([*PLACE, *PLACE_PHRASES])

    def spans(self, words: Sequence[str]) -> list[Span]:
        spans = super().spans(words)
        return [(a, b) for a, b in spans if b - a > 1 or words[a] != "left" or not is_verb_left(words, a)]


class Number(Listed):
    """Words of number in English: two, more, several, 12 (the lists are in docs/training.md)."""

    def __init__(self) -> None:
        super().__init__([*NUMBER, *NUMBER_PHRASES], [Searcher(r"\b\d+\b", "role number")])


class Attribute(Listed):
    """Words of attribute in English: red, small, wooden, open (the lists are in docs/training.md)."""

    def __init__(self) -> None:
        super().__init__(ATTRIBUTE)


class Noun(Role):
    """Names of things in English, one word each: nouns by a list and by their endings."""

    def spans(self, words: Sequence[str]) -> list[Span]:
        nouns = {word for word in words if word and part_of_speech(word) == "NN"} - _NO_NOUNS
        return [(index, index + 1) for index, word in enumerate(words) if word in nouns]


_NO_NOUNS = PLACE | NUMBER | ATTRIBUTE | FUNCTION_WORDS


class Words(Listed):
    """A list of one's own, of any language: words, phrases, regular expressions.

    Args:
        words: words and phrases; capitals do not matter.
        patterns: regular expressions over the lower-case sentence without punctuation at the ends of its words; a match
            counts where it begins and ends with a word. RecipeError: one is no regular expression.
    """

    def __init__(self, *, words: list[str] = [], patterns: list[str] = []) -> None:  # noqa: B006 (a schema's default)
        if not words and not patterns:
            what = "The role `words` needs words or patterns."
            raise ComponentError(what, where="role words", hint="words: [left of, above], or patterns: ['[a-z]+most']")
        super().__init__(words, [Searcher(pattern, "role words.patterns") for pattern in patterns])


def content(words: Sequence[str], span: Span) -> list[int]:
    """Return the indices of a run without "of", "the" and the like, unless nothing else is there."""
    return [index for index in range(*span) if words[index] not in _GRAMMAR] or list(range(*span))


_GRAMMAR = frozenset(["of", "the", "a", "an", "to", "on", "at", "in", "is", "are", "from", "than", "by"])

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
        spans: list[Span] = []
        for start, word in enumerate(words):
            if not spans or start >= spans[-1][1]:
                fitting = (p for p in self._by_first.get(word, ()) if tuple(words[start : start + len(p)]) == p)
                spans += [(start, start + len(phrase)) for phrase in islice(fitting, 1)]
        return spans


def is_verb_left(words: Sequence[str], index: int) -> bool:
    """Whether ``left`` at this index is the verb ("has left the room") and not a side."""
    before, _, after = ["", *words, ""][index : index + 3]
    sides = ("of", "side", "hand", "corner", "edge", "half", "picture", "image", "one", "arm", "foot", "leg", "eye")
    leads = ("the", "to", "on", "at", "far", "upper", "lower", "top", "bottom", "is", "are", "its", "his", "her", "and")
    return after not in sides and before not in leads and index > 0


def phrases(words: Sequence[str]) -> list[Span]:
    """Return relations ("to the left of", two words or more) and names ("a red circle") in plain words, in order."""
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
    return "other" if word in FUNCTION_WORDS and part_of_speech(word) != "DT" else part_of_speech(word)


_RELATIONS = Finder(
    side.split()
    for side in (*PLACE_PHRASES, *(side for pair in OPPOSITES for side in pair))
    if " " in side and not side.startswith("the ")
)


def as_phrases(texts: Iterable[str]) -> list[tuple[str, ...]]:
    """Split strings into phrases of plain words; empty ones are left out."""
    return list(filter(None, (tuple(filter(None, map(plain, text.split()))) for text in texts)))


def matches(words: Sequence[str], patterns: Sequence[Searcher]) -> list[Span]:
    """Return the matches of regular expressions in the sentence that begin and end with a word."""
    bounds = list(accumulate((len(word) + 1 for word in words), initial=0))
    starts = {start: index for index, start in enumerate(bounds[:-1])}
    stops = {end - 1: index + 1 for index, end in enumerate(bounds[1:])}
    hits = [span for pattern in patterns for span in pattern.spans(" ".join(words))]
    return [(starts[a], stops[b]) for a, b in hits if a in starts and b in stops and a < b]
