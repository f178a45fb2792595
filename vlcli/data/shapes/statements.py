"""NLVR2 statements: two sentences and two picture pairs in which each sentence is true of one pair; writes their files.

            pair 0  pair 1
    first   True    False
    second  False   True

So every sentence string is as often true as false, and so is every pair: neither language alone nor pictures alone
say anything. What one picture of a pair gives away together with the sentence is kept as small as each kind allows.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from vlcli.data.shapes.captions import PHRASES, sentence
from vlcli.data.shapes.coco import instances, write_json, write_lines
from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.render import draw_pictures
from vlcli.data.shapes.scenes import FreshScenes, NoSuchSceneError, PooledScenes, Scenes
from vlcli.data.shapes.world import OPPOSITE, RELATIONS, Noun, Picture, Scene, concrete, stream
from vlcli.errors import DataError
from vlcli.progress import Progress

SIDES = ("left", "right")
FRAMES = {
    "both": (
        "each picture contains {}",
        "both pictures contain {}",
        "there is {} in both pictures",
        "there is {} in each picture",
        "the left picture and the right picture both show {}",
    ),
    "one": (
        "exactly one of the pictures contains {}",
        "only one of the two pictures shows {}",
        "there is {} in only one picture",
        "one picture contains {} and the other does not",
    ),
    "any": (
        "at least one of the pictures contains {}",
        "there is {} in at least one picture",
        "{} is in one picture or in both",
    ),
    "has": (
        "the {side} picture contains {}",
        "there is {} in the {side} picture",
        "the picture on the {side} shows {}",
        "{} is in the {side} picture",
    ),
    "attribute": ("the {kind} in the {side} picture is {}", "in the {side} picture the {kind} is {}"),
    "relation": (
        "{} is {} {} in the {side} picture",
        "in the {side} picture {} is {} {}",
        "there is {} {} {} in the {side} picture",
    ),
    "more": (
        "there are {} {many} in the {side} picture than in the {other} picture",
        "the {side} picture has {} {many} than the {other} picture",
        "the {side} picture contains {} {many} than the {other} one",
    ),
    "count": (
        "there are exactly {} in total",
        "the two pictures contain exactly {} in all",
        "there are exactly {} in the two pictures together",
    ),
}
Pair = tuple[Scene, Scene]
Texts = tuple[str, str]
Holds = tuple[int, int]
"""Whether the left and the right picture of a pair hold a noun."""


class StatementCell(NamedTuple):
    """Two sentences and two pairs; sentence ``i`` is true of pair ``i`` and false of the other."""

    texts: Texts
    pairs: tuple[Pair, Pair]


def cell(kind: str, rng: Random, config: ShapesConfig, scenes: Scenes | None = None) -> StatementCell:
    """Return one cell of a kind of statement.

    Args:
        kind: a name out of ``STATEMENTS``.
        scenes: where pictures come from; None: each is made for its cell.
    """
    texts, pairs = BUILDERS[kind](rng, config, FreshScenes(rng, config) if scenes is None else scenes)
    return StatementCell((sentence(texts[0]), sentence(texts[1])), pairs)


Plain = tuple[Texts, tuple[Pair, Pair]]


# Two descriptions of one form, such that a picture can hold either without the other.
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


def _both(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    nouns = _nouns(rng, config)
    one, two = rng.sample(((1, 0), (0, 1)), 2)
    return _holding(rng, scenes, "both", nouns, ((1, 1), two), (one, (1, 1)))


def _one(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    # false: in both pictures or in neither, so that one picture says nothing
    nouns = _nouns(rng, config)
    single = rng.sample(((1, 0), (0, 1)), 2)
    other = rng.sample(((1, 1), (0, 0)), 2)
    return _holding(rng, scenes, "one", nouns, (single[0], other[1]), (other[0], single[1]))


def _any(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    nouns = _nouns(rng, config)
    one, two = rng.sample(((1, 0), (0, 1)), 2)
    return _holding(rng, scenes, "any", nouns, (one, (0, 0)), ((0, 0), two))


def _has(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    # the picture that is not named holds either, both or neither
    nouns, side = _nouns(rng, config), rng.choice(SIDES)
    rows = []
    for named in ((1, 0), (0, 1)):
        other = (rng.randint(0, 1), rng.randint(0, 1))
        left, right = (named, other) if side == "left" else (other, named)
        rows.append(((left[0], right[0]), (left[1], right[1])))
    return _holding(rng, scenes, "has", nouns, *rows, side=side)


def _holding(
    rng: Random,
    scenes: Scenes,
    kind: str,
    nouns: tuple[Noun, Noun],
    *rows: tuple[Holds, Holds],
    **words: str,
) -> Plain:
    frame = rng.choice(FRAMES[kind])
    pairs = [
        (scenes.holding(nouns, (bool(a), bool(c))), scenes.holding(nouns, (bool(b), bool(d))))
        for (a, b), (c, d) in rows
    ]
    return (frame.format(nouns[0].a, **words), frame.format(nouns[1].a, **words)), (pairs[0], pairs[1])


def _attribute(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    # the other colour is there too, on another kind
    kind, decoy = rng.sample(config.kinds, 2)
    colours, side = rng.sample(config.colours, 2), rng.choice(SIDES)
    pairs = []
    for colour, other in (colours, colours[::-1]):
        free = rng.sample(colours, 2)
        shown = scenes.coloured(kind, colour, decoy, other)
        unnamed = scenes.coloured(kind, free[0], decoy, free[1])
        pairs.append((shown, unnamed) if side == "left" else (unnamed, shown))
    frame = rng.choice(FRAMES["attribute"])
    one, two = (frame.format(colour, kind=kind, side=side) for colour in colours)
    return (one, two), (pairs[0], pairs[1])


def _relation(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    # the picture that is not named holds both shapes too, in either order
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
    frame = rng.choice(FRAMES["relation"])
    first = frame.format(nouns[0].a, PHRASES[word], nouns[1].a, side=side)
    if rng.random() < 0.5:
        second = frame.format(nouns[0].a, PHRASES[OPPOSITE[word]], nouns[1].a, side=side)
    else:
        second = frame.format(nouns[1].a, PHRASES[word], nouns[0].a, side=side)
    return (first, second), (pairs[0], pairs[1])


def _countable(rng: Random, config: ShapesConfig) -> Noun:
    draw = rng.random()
    if draw < 0.5:
        return Noun(kind=rng.choice(config.kinds))
    return Noun(colour=rng.choice(config.colours)) if draw < 0.9 else Noun()


def _more(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    # the numbers spread evenly over all that fit, for true and for false: one picture says little
    noun, gap = _countable(rng, config), rng.choice(config.more_gaps)
    lowest = 1 if noun == Noun() else 0
    gap = min(gap, config.objects[1] - lowest)

    def pair(more_left: bool) -> Pair:
        low = rng.randint(lowest, config.objects[1] - gap)
        counts = (low + gap, low) if more_left else (low, low + gap)
        return scenes.counting(noun, counts[0]), scenes.counting(noun, counts[1])

    word, side = rng.choice(("more", "fewer")), rng.choice(SIDES)
    frame = rng.choice(FRAMES["more"])
    first, second = pair((word == "more") == (side == "left")), pair((word == "more") != (side == "left"))
    one, two = (
        frame.format(one, many=noun.many, side=side, other=OPPOSITE[side])
        for one in (word, "fewer" if word == "more" else "more")
    )
    return (one, two), (first, second)


def _count(rng: Random, config: ShapesConfig, scenes: Scenes) -> Plain:
    # a total over both pictures, exact or as a bound
    noun = _countable(rng, config)
    least = 2 if noun == Noun() else 0
    totals = [least + rng.randint(1, 4), 0]
    totals[1] = rng.choice([n for n in range(max(least, totals[0] - 2), totals[0] + 3) if n not in (totals[0], 0)])
    pairs = [_shared(rng, config, scenes, noun, total) for total in totals]
    frame = rng.choice(FRAMES["count"])
    if rng.random() < 0.6:
        texts = [_agree(frame.format(noun.number(total)), total) for total in totals]
        return (texts[0], texts[1]), (pairs[0], pairs[1])
    limit = rng.randint(min(totals) + 1, max(totals))
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


def write_nlvr2(root: Path, config: ShapesConfig, progress: Progress, workers: int) -> dict[str, int]:
    """Write nlvr2/{train,dev,test1}.json, instances_*.json and images/."""
    wanted = {"train": config.nlvr2_train, "dev": config.nlvr2_dev, "test1": config.nlvr2_test}
    counts = {"nlvr2 pictures": 0, "nlvr2 statements": 0}
    annotation = 1
    for split, examples in wanted.items():
        rng, first = stream(config, "nlvr2", split), counts["nlvr2 pictures"] + 1
        pool = PooledScenes(rng, config) if split == "train" and config.nlvr2_pool else None
        cells = [(kind, _cell(kind, rng, config, pool)) for kind in _kinds(config, split, -(-examples // 4))]
        pictures = list(_pictures(split, cells, first) if pool is None else _pool(split, pool.pool, first))
        names = {id(picture.scene): picture.file for picture in pictures}
        rows = [row for number, (kind, one) in enumerate(cells) for row in _rows(split, number, kind, one, names)]
        draw_pictures(root / "nlvr2/images", pictures, progress, f"nlvr2 {split}", workers)
        write_lines(root / f"nlvr2/{split}.json", rows)
        write_json(root / f"nlvr2/instances_{split}.json", instances(config, pictures, annotation))
        annotation += sum(len(picture.drawn) for picture in pictures)
        counts["nlvr2 pictures"] += len(pictures)
        counts["nlvr2 statements"] += len(rows)
    return counts


def _kinds(config: ShapesConfig, split: str, count: int) -> list[str]:
    kinds = config.statements if split == "train" else tuple(dict.fromkeys(config.statements))
    return [kinds[number % len(kinds)] for number in range(count)]


def _cell(kind: str, rng: Random, config: ShapesConfig, pool: PooledScenes | None) -> StatementCell:
    for _ in range(100):
        with suppress(NoSuchSceneError):
            return cell(kind, rng, config, pool)
    raise DataError(
        "the pool of pictures is too small for these statements",
        where="shapes.nlvr2_pool",
        got=f"{config.nlvr2_pool} pictures, statements: {kind}",
        hint="raise nlvr2_pool, or set it to 0: each cell then has four pictures of its own",
    )


def _stem(split: str, number: int, pair: int) -> str:
    folder = f"train/{number % 100}" if split == "train" else split
    return f"{folder}/{split}-{number}-{pair}"


def _rows(
    split: str, number: int, kind: str, statements: StatementCell, names: dict[int, str]
) -> Iterator[dict[str, object]]:
    for pair, scenes in enumerate(statements.pairs):
        files = [names[id(scene)] for scene in scenes]
        for index, text in enumerate(statements.texts):
            label = str(pair == index)
            row: dict[str, object] = {
                "validation": {"0": label},
                "sentence": text,
                "left_url": f"images/{files[0]}",
                "writer": "0",
                "label": label,
                "right_url": f"images/{files[1]}",
                "synset": "shape",
                "query": f"shapes{number}",
                "identifier": f"{split}-{number}-{pair}-{index}",
                "kind": kind,
            }
            if files[0] != f"{_stem(split, number, pair)}-img0.png":  # the identifier does not name a pool's pictures
                row |= {f"img{side}": Path(file).stem for side, file in enumerate(files)}
            row |= {"directory": number % 100} if split == "train" else {"extra_validations": {"1": label}}
            yield row


def _pictures(split: str, cells: list[tuple[str, StatementCell]], first: int) -> Iterator[Picture]:
    for number, (_, one) in enumerate(cells):
        for pair, scenes in enumerate(one.pairs):
            for side, scene in enumerate(scenes):
                yield Picture(first, f"{_stem(split, number, pair)}-img{side}.png", scene)
                first += 1


def _pool(split: str, scenes: list[Scene], first: int) -> Iterator[Picture]:
    for number, scene in enumerate(scenes, first):
        yield Picture(number, f"{split}/pool/{split}-pool-{number}.png", scene)
