"""Lists English words of captions by role (place, number, attribute) and those that exclude one another.

A word of several senses is listed where captions mostly use it in this one, and looked at in its context otherwise
(``left``). Everything is lower case; lists of phrases are separated by commas.
"""

from __future__ import annotations

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


def opposites() -> dict[str, list[str]]:
    """Return each phrase of :data:`OPPOSITES` with its opposites."""
    table: dict[str, list[str]] = {}
    for one, other in OPPOSITES:
        table.setdefault(one, []).append(other)
        table.setdefault(other, []).append(one)
    return table
