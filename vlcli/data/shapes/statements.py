"""NLVR2 statements: two sentences and two picture pairs in which each sentence is true of one pair; writes their files.

            pair 0  pair 1
    first   True    False
    second  False   True

So every sentence string is as often true as false, and so is every pair: neither language alone nor pictures alone
say anything. What one picture of a pair gives away together with the sentence is kept as small as each kind allows.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from vlcli.data.shapes.captions import PHRASES, sentence
from vlcli.data.shapes.coco import write_instances, write_lines
from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.render import draw_pictures
from vlcli.data.shapes.scenes import NoSuchSceneError, PooledScenes, Scenes
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
Pair = list[Scene]


class StatementCell(NamedTuple):
    """Two sentences and two pairs; sentence ``i`` is true of pair ``i`` and false of the other."""

    texts: list[str]
    pairs: list[Pair]


def cell(kind: str, rng: Random, config: ShapesConfig, scenes: Scenes | None = None) -> StatementCell:
    """Return one cell of a kind of statement; ``scenes`` None: each picture is made for its cell."""
    texts, pairs = BUILDERS[kind](scenes or Scenes(rng, config))
    return StatementCell([sentence(text) for text in texts], pairs)


# Two descriptions of one form, such that a picture can hold either without the other.
def _nouns(scenes: Scenes) -> tuple[Noun, Noun]:
    draw = scenes.rng.random()
    if draw < 0.76:
        named: tuple[str, ...] = ("colour", "kind")
    else:
        named = ("kind",) if draw < 0.84 else ("colour",) if draw < 0.92 else ("size", "kind")
    while True:
        looks = [concrete(scenes.rng, scenes.config, Noun()) for _ in range(2)]
        one, two = (Noun(**{name: getattr(look, name) for name in named}) for look in looks)
        if one != two:
            return one, two


def _holding(kind: str, scenes: Scenes) -> tuple[list[str], list[Pair]]:
    rng, nouns = scenes.rng, _nouns(scenes)
    side = rng.choice(SIDES) if kind == "has" else ""
    if kind == "has":  # the picture that is not named holds either, both or neither
        rows = [[(1, 0), (rng.randint(0, 1), rng.randint(0, 1))], [(0, 1), (rng.randint(0, 1), rng.randint(0, 1))]]
        held = [row if side == "left" else row[::-1] for row in rows]
    else:
        held = [list(zip(*row, strict=True)) for row in _held_by(kind, rng)]
    frame = rng.choice(FRAMES[kind])
    pairs = [[scenes.holding(nouns, picture) for picture in pair] for pair in held]
    return [frame.format(noun.a, side=side) for noun in nouns], pairs


# Of both pairs: whether the left and the right picture hold the first noun, and the second.
def _held_by(kind: str, rng: Random) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    one, two = rng.sample(((1, 0), (0, 1)), 2)
    if kind == "both":
        return [((1, 1), two), (one, (1, 1))]
    if kind == "any":
        return [(one, (0, 0)), ((0, 0), two)]
    # false: in both pictures or in neither, so that one picture says nothing
    other, another = rng.sample(((1, 1), (0, 0)), 2)
    return [(one, another), (other, two)]


def _attribute(scenes: Scenes) -> tuple[list[str], list[Pair]]:
    # the other colour is there too, on another kind
    rng, config = scenes.rng, scenes.config
    kind, decoy = rng.sample(config.kinds, 2)
    colours, side = rng.sample(config.colours, 2), rng.choice(SIDES)
    pairs = []
    for colour, other in (colours, colours[::-1]):
        free = rng.sample(colours, 2)
        pair = [scenes.coloured(kind, colour, decoy, other), scenes.coloured(kind, free[0], decoy, free[1])]
        pairs.append(pair if side == "left" else pair[::-1])
    frame = rng.choice(FRAMES["attribute"])
    return [frame.format(colour, kind=kind, side=side) for colour in colours], pairs


def _relation(scenes: Scenes) -> tuple[list[str], list[Pair]]:
    # the picture that is not named holds both shapes too, in either order
    rng = scenes.rng
    looks = [concrete(rng, scenes.config, Noun()) for _ in range(2)]
    while looks[0].colour == looks[1].colour or looks[0].kind == looks[1].kind:
        looks[1] = concrete(rng, scenes.config, Noun())
    one, two = (Noun("", look.colour, look.kind) for look in looks)
    word, side = rng.choice(RELATIONS), rng.choice(SIDES)
    opposite, pairs = OPPOSITE[word], []
    for shown in (word, opposite):
        pair = [scenes.related((one, two), shown), scenes.related((one, two), rng.choice((word, opposite)))]
        pairs.append(pair if side == "left" else pair[::-1])
    frame = rng.choice(FRAMES["relation"])
    turned = (one.a, PHRASES[opposite], two.a) if rng.random() < 0.5 else (two.a, PHRASES[word], one.a)
    return [frame.format(*parts, side=side) for parts in ((one.a, PHRASES[word], two.a), turned)], pairs


def _countable(scenes: Scenes) -> Noun:
    draw = scenes.rng.random()
    if draw < 0.5:
        return Noun(kind=scenes.rng.choice(scenes.config.kinds))
    return Noun(colour=scenes.rng.choice(scenes.config.colours)) if draw < 0.9 else Noun()


def _more(scenes: Scenes) -> tuple[list[str], list[Pair]]:
    # the numbers spread evenly over all that fit, for true and for false: one picture says little
    rng, most, noun = scenes.rng, scenes.config.objects[1], _countable(scenes)
    lowest = int(noun == Noun())
    gap = min(rng.choice(scenes.config.more_gaps), most - lowest)
    word, side = rng.choice(("more", "fewer")), rng.choice(SIDES)
    frame = rng.choice(FRAMES["more"])
    other = OPPOSITE[side]
    pairs = []
    for fuller in (side, other) if word == "more" else (other, side):
        low = rng.randint(lowest, most - gap)
        pairs.append([scenes.counting(noun, low + gap * (fuller == place)) for place in SIDES])
    words = (word, "fewer" if word == "more" else "more")
    return [frame.format(one, many=noun.many, side=side, other=other) for one in words], pairs


def _count(scenes: Scenes) -> tuple[list[str], list[Pair]]:
    # a total over both pictures, exact or as a bound
    rng, most, noun = scenes.rng, scenes.config.objects[1], _countable(scenes)
    least = int(noun == Noun())  # of one picture
    first = 2 * least + rng.randint(1, 4)
    second = rng.choice([n for n in range(max(2 * least, first - 2), first + 3) if n not in (first, 0)])
    pairs = []
    for total in (first, second):
        left = rng.randint(max(least, total - most), min(most, total - least))
        pairs.append([scenes.counting(noun, left), scenes.counting(noun, total - left)])
    frame = rng.choice(FRAMES["count"])
    if rng.random() < 0.6:
        return [_agree(frame.format(noun.number(total)), total) for total in (first, second)], pairs
    limit = rng.randint(min(first, second) + 1, max(first, second))
    at_least = _agree(f"there are at least {noun.number(limit)} in total", limit)
    fewer = _agree(f"there are at most {noun.number(limit - 1)} in total", limit - 1)
    if rng.random() < 0.5:
        fewer = _agree(f"there are fewer than {noun.number(limit)} in total", limit)
    return [at_least, fewer] if first > second else [fewer, at_least], pairs


def _agree(text: str, count: int) -> str:
    return text.replace("there are", "there is") if count == 1 else text


BUILDERS: dict[str, Callable[[Scenes], tuple[list[str], list[Pair]]]] = {
    **{kind: partial(_holding, kind) for kind in ("both", "one", "has", "any")},
    "more": _more,
    "count": _count,
    "relation": _relation,
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
        kinds = config.statements if split == "train" else tuple(dict.fromkeys(config.statements))
        chosen = [kinds[number % len(kinds)] for number in range(-(-examples // 4))]
        cells = [(kind, _cell(kind, rng, config, pool)) for kind in chosen]
        if pool is None:
            files = list(_files(split, cells))
        else:
            files = [
                (f"{split}/pool/{split}-pool-{number}.png", scene) for number, scene in enumerate(pool.pool, first)
            ]
        pictures = [Picture(number, file, scene) for number, (file, scene) in enumerate(files, first)]
        names = {id(picture.scene): picture.file for picture in pictures}
        rows = [row for number, (kind, one) in enumerate(cells) for row in _rows(split, number, kind, one, names)]
        draw_pictures(root / "nlvr2/images", pictures, progress, f"nlvr2 {split}", workers)
        write_lines(root / f"nlvr2/{split}.json", rows)
        annotation = write_instances(root / f"nlvr2/instances_{split}.json", config, pictures, annotation)
        counts["nlvr2 pictures"] += len(pictures)
        counts["nlvr2 statements"] += len(rows)
    return counts


def _cell(kind: str, rng: Random, config: ShapesConfig, pool: PooledScenes | None) -> StatementCell:
    for _ in range(100):
        with suppress(NoSuchSceneError):
            return cell(kind, rng, config, pool)
    what = "the pool of pictures is too small for these statements"
    hint = "raise nlvr2_pool, or set it to 0: each cell then has four pictures of its own"
    raise DataError(what, where="shapes.nlvr2_pool", got=f"{config.nlvr2_pool} pictures, statements: {kind}", hint=hint)


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
            if "pool" in files[0]:  # the identifier does not name its pictures
                row |= {f"img{side}": Path(file).stem for side, file in enumerate(files)}
            row |= {"directory": number % 100} if split == "train" else {"extra_validations": {"1": label}}
            yield row


def _files(split: str, cells: list[tuple[str, StatementCell]]) -> Iterator[tuple[str, Scene]]:
    for number, (_, one) in enumerate(cells):
        folder = f"train/{number % 100}" if split == "train" else split
        for pair, scenes in enumerate(one.pairs):
            stem = f"{folder}/{split}-{number}-{pair}"
            yield from ((f"{stem}-img{side}.png", scene) for side, scene in enumerate(scenes))
