"""NLVR2 statements: cells of two sentences and two picture pairs in which each sentence is true of one pair only.

            pair 0  pair 1
    first   True    False
    second  False   True

So every sentence string is as often true as false, and so is every pair: neither language alone nor pictures alone
say anything. What one picture of a pair gives away together with the sentence is kept as small as each kind allows.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from vlcli.data.shapes.captions import PHRASES, sentence
from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.scenes import FreshScenes, Scenes
from vlcli.data.shapes.world import OPPOSITE, RELATIONS, Noun, Scene, concrete

SIDES = ("left", "right")
Pair = tuple[Scene, Scene]


class StatementCell(NamedTuple):
    """Two sentences and two pairs; sentence ``i`` is true of pair ``i`` and false of the other."""

    texts: tuple[str, str]
    pairs: tuple[Pair, Pair]


def cell(kind: str, rng: Random, config: ShapesConfig, scenes: Scenes | None = None) -> StatementCell:
    """One cell of a kind of statement.

    Args:
        kind: a name out of ``STATEMENTS``.
        rng: generator of the part.
        config: of the world.
        scenes: where pictures come from; None: each is made for its cell.
    """
    texts, pairs = BUILDERS[kind](rng, config, FreshScenes(rng, config) if scenes is None else scenes)
    return StatementCell((sentence(texts[0]), sentence(texts[1])), pairs)


Plain = tuple[tuple[str, str], tuple[Pair, Pair]]


def _nouns(rng: Random, config: ShapesConfig) -> tuple[Noun, Noun]:
    form = rng.random()
    while True:
        one, two = (concrete(rng, config, Noun()) for _ in range(2))
        if form < 0.76 and one[1:] != two[1:]:
            return Noun("", *one[1:]), Noun("", *two[1:])
        if 0.76 <= form < 0.84 and one.kind != two.kind:
            return Noun(kind=one.kind), Noun(kind=two.kind)
        if 0.84 <= form < 0.92 and one.colour != two.colour:
            return Noun(colour=one.colour), Noun(colour=two.colour)
        if form >= 0.92 and (one.size, one.kind) != (two.size, two.kind):
            return Noun(one.size, "", one.kind), Noun(two.size, "", two.kind)


def _table(scenes: Scenes, nouns: tuple[Noun, Noun], cells: list[tuple[int, int, int, int]]) -> tuple[Pair, Pair]:
    made = [
        (scenes.holding(nouns, (bool(a), bool(c))), scenes.holding(nouns, (bool(b), bool(d)))) for a, b, c, d in cells
    ]
    return made[0], made[1]


def _both(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    nouns = _nouns(rng, config)
    one, two = rng.sample(((1, 0), (0, 1)), 2)
    frame = rng.choice(
        (
            "each picture contains {}",
            "both pictures contain {}",
            "there is {} in both pictures",
            "there is {} in each picture",
            "the left picture and the right picture both show {}",
        )
    )
    return (frame.format(nouns[0].a), frame.format(nouns[1].a)), _table(scenes, nouns, [(1, 1, *two), (*one, 1, 1)])


def _one(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    nouns = _nouns(rng, config)
    single = rng.sample(((1, 0), (0, 1)), 2)
    other = rng.sample(((1, 1), (0, 0)), 2)
    frame = rng.choice(
        (
            "exactly one of the pictures contains {}",
            "only one of the two pictures shows {}",
            "there is {} in only one picture",
            "one picture contains {} and the other does not",
        )
    )
    table = [(*single[0], *other[1]), (*other[0], *single[1])]
    return (frame.format(nouns[0].a), frame.format(nouns[1].a)), _table(scenes, nouns, table)


def _any(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    nouns = _nouns(rng, config)
    one, two = rng.sample(((1, 0), (0, 1)), 2)
    frame = rng.choice(
        (
            "at least one of the pictures contains {}",
            "there is {} in at least one picture",
            "{} is in one picture or in both",
        )
    )
    return (frame.format(nouns[0].a), frame.format(nouns[1].a)), _table(scenes, nouns, [(*one, 0, 0), (0, 0, *two)])


def _has(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    nouns, side = _nouns(rng, config), rng.choice(SIDES)
    rows = []
    for mine in ((1, 0), (0, 1)):
        other = (rng.randint(0, 1), rng.randint(0, 1))
        left, right = (mine, other) if side == "left" else (other, mine)
        rows.append((left[0], right[0], left[1], right[1]))
    frame = rng.choice(
        (
            f"the {side} picture contains {{}}",
            f"there is {{}} in the {side} picture",
            f"the picture on the {side} shows {{}}",
            f"{{}} is in the {side} picture",
        )
    )
    return (frame.format(nouns[0].a), frame.format(nouns[1].a)), _table(scenes, nouns, rows)


def _attribute(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    kind, decoy = rng.sample(config.kinds, 2)
    colours, side = rng.sample(config.colours, 2), rng.choice(SIDES)

    pairs = []
    for colour, other in ((colours[0], colours[1]), (colours[1], colours[0])):
        free = rng.sample(colours, 2)
        shown = scenes.coloured(kind, colour, decoy, other)
        unnamed = scenes.coloured(kind, free[0], decoy, free[1])
        pairs.append((shown, unnamed) if side == "left" else (unnamed, shown))
    frame = rng.choice((f"the {kind} in the {side} picture is {{}}", f"in the {side} picture the {kind} is {{}}"))
    return (frame.format(colours[0]), frame.format(colours[1])), (pairs[0], pairs[1])


def _relation(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    one, two = (concrete(rng, config, Noun()) for _ in range(2))
    while one.colour == two.colour or one.kind == two.kind:
        two = concrete(rng, config, Noun())
    nouns = (Noun("", *one[1:]), Noun("", *two[1:]))
    word, side = rng.choice(RELATIONS), rng.choice(SIDES)

    pairs = []
    for shown_word in (word, OPPOSITE[word]):
        shown = scenes.related(nouns, shown_word)
        unnamed = scenes.related(nouns, rng.choice((word, OPPOSITE[word])))
        pairs.append((shown, unnamed) if side == "left" else (unnamed, shown))
    return _relation_texts(rng, nouns, word, side), (pairs[0], pairs[1])


def _relation_texts(rng: Random, nouns: tuple[Noun, Noun], word: str, side: str) -> tuple[str, str]:
    frame = rng.choice(
        (
            f"{{}} is {{}} {{}} in the {side} picture",
            f"in the {side} picture {{}} is {{}} {{}}",
            f"there is {{}} {{}} {{}} in the {side} picture",
        )
    )
    first = frame.format(nouns[0].a, PHRASES[word], nouns[1].a)
    if rng.random() < 0.5:
        return first, frame.format(nouns[0].a, PHRASES[OPPOSITE[word]], nouns[1].a)
    return first, frame.format(nouns[1].a, PHRASES[word], nouns[0].a)


def _countable(rng: Random, config: ShapesConfig) -> Noun:
    draw = rng.random()
    if draw < 0.5:
        return Noun(kind=rng.choice(config.kinds))
    return Noun(colour=rng.choice(config.colours)) if draw < 0.9 else Noun()


def _more(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    noun, gap = _countable(rng, config), rng.choice(config.more_gaps)
    lowest = 1 if noun == Noun() else 0
    gap = min(gap, config.objects[1] - lowest)

    def made(more_left: bool) -> Pair:
        low = rng.randint(lowest, config.objects[1] - gap)
        counts = (low + gap, low) if more_left else (low, low + gap)
        return scenes.counting(noun, counts[0]), scenes.counting(noun, counts[1])

    word, side = rng.choice(("more", "fewer")), rng.choice(SIDES)
    other = OPPOSITE[side]
    frame = rng.choice(
        (
            f"there are {{}} {noun.many} in the {side} picture than in the {other} picture",
            f"the {side} picture has {{}} {noun.many} than the {other} picture",
            f"the {side} picture contains {{}} {noun.many} than the {other} one",
        )
    )
    first = made((word == "more") == (side == "left"))
    second = made((word == "more") != (side == "left"))
    return (frame.format(word), frame.format("fewer" if word == "more" else "more")), (first, second)


def _count(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    noun = _countable(rng, config)
    least = 2 if noun == Noun() else 0
    totals = [least + rng.randint(1, 4), 0]
    totals[1] = rng.choice([n for n in range(max(least, totals[0] - 2), totals[0] + 3) if n not in (totals[0], 0)])
    pairs = [_shared(rng, config, scenes, noun, total) for total in totals]
    frame = rng.choice(
        (
            "there are exactly {} in total",
            "the two pictures contain exactly {} in all",
            "there are exactly {} in the two pictures together",
        )
    )
    if rng.random() < 0.6:
        texts = [_agree(frame.format(noun.number(total)), total) for total in totals]
        return (texts[0], texts[1]), (pairs[0], pairs[1])
    high, low = max(totals), min(totals)
    limit = rng.randint(low + 1, high)
    at_least = _agree(f"there are at least {noun.number(limit)} in total", limit)
    fewer = _agree(f"there are at most {noun.number(limit - 1)} in total", limit - 1)
    if rng.random() < 0.5:
        fewer = _agree(f"there are fewer than {noun.number(limit)} in total", limit)
    return ((at_least, fewer) if totals[0] > totals[1] else (fewer, at_least)), (pairs[0], pairs[1])


def _agree(text: str, count: int) -> str:
    return text.replace("there are", "there is") if count == 1 else text


def _shared(rng: Random, config: ShapesConfig, scenes: Scenes, noun: Noun, total: int) -> Pair:
    most, least = config.objects[1], 1 if noun == Noun() else 0
    left = rng.randint(max(least, total - most), min(most, total - least))
    return scenes.counting(noun, left), scenes.counting(noun, total - left)


BUILDERS: dict[str, Callable[[Random, ShapesConfig, Scenes], Plain]] = {
    "both": _both,
    "one": _one,
    "has": _has,
    "more": _more,
    "count": _count,
    "relation": _relation,
    "any": _any,
    "attribute": _attribute,
}
