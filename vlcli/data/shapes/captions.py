"""Writes captions of pictures: COCO captions of many forms, and full descriptions that tell pictures apart."""

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from random import Random

from vlcli.data.shapes.config import ShapesConfig
from vlcli.data.shapes.world import Noun, Scene, number_word

PHRASES = {"left": "left of", "right": "right of", "above": "above", "below": "below"}
SHOWS = ("{}", "there is {}", "the picture shows {}", "a picture of {}", "the picture contains {}")
Form = Callable[[Scene, Random, ShapesConfig], str]


def sentence(text: str) -> str:
    """Return a text with a capital and a full stop."""
    return text[0].upper() + text[1:] + "."


def listing(words: list[str]) -> str:
    """Return ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def described(scene: Scene, index: int, rng: Random) -> Noun:
    """Return a description of one shape by colour and kind, often by size too."""
    look = scene.shapes[index].look
    return Noun(look.size if rng.random() < 0.45 else "", look.colour, look.kind)


def _list(scene: Scene, rng: Random, _: ShapesConfig) -> str:
    order = list(range(len(scene.shapes)))
    rng.shuffle(order)
    kept = order[: rng.randint(2, len(order))]
    return rng.choice(SHOWS).format(listing([described(scene, index, rng).a for index in kept]))


def _single(scene: Scene, rng: Random, _: ShapesConfig) -> str:
    return rng.choice(SHOWS).format(described(scene, rng.randrange(len(scene.shapes)), rng).a)


def _absent(scene: Scene, rng: Random, config: ShapesConfig) -> str:
    noun = Noun("", rng.choice(config.colours), rng.choice(config.kinds))
    while noun.count(scene.looks):
        noun = Noun("", rng.choice(config.colours), rng.choice(config.kinds))
    frame = rng.choice(("there is no {}", "the picture shows no {}", "a picture without {}"))
    return frame.format(noun.a if "without" in frame else noun.one)


def _relation(scene: Scene, rng: Random, config: ShapesConfig) -> str:
    pairs = []
    for (a, one), (b, two) in permutations(enumerate(scene.shapes), 2):
        if abs(one.x - two.x) >= abs(one.y - two.y):  # the axis on which the shapes are farther apart
            word = "left" if one.x < two.x else "right"
        else:
            word = "above" if one.y < two.y else "below"
        if scene.stands(a, word, b):
            pairs.append((a, word, b))
    if not pairs:
        return _list(scene, rng, config)
    first, word, second = rng.choice(pairs)
    frame = rng.choice(("{} is {} {}", "{} {} {}", "there is {} {} {}"))
    return frame.format(described(scene, first, rng).a, PHRASES[word], described(scene, second, rng).a)


def _count(scene: Scene, rng: Random, config: ShapesConfig) -> str:
    noun = rng.choice([Noun(kind=rng.choice(config.kinds)), Noun(colour=rng.choice(config.colours)), Noun()])
    if noun != Noun() and rng.random() < 0.75:
        look = rng.choice(scene.looks)
        noun = Noun(kind=look.kind) if noun.kind else Noun(colour=look.colour)
    count = noun.count(scene.looks)
    there = "there is" if count == 1 else "there are"
    frames = (there + " {}", there + (" exactly {}" if count else " {}"), "the picture contains {}")
    return rng.choice(frames).format(noun.number(count))


def _groups(scene: Scene, rng: Random, _: ShapesConfig) -> str:
    by_kind = rng.random() < 0.5
    groups = Counter(look.kind if by_kind else look.colour for look in scene.looks)
    nouns = [(Noun(kind=word) if by_kind else Noun(colour=word), count) for word, count in groups.items()]
    rng.shuffle(nouns)
    return rng.choice(("{}", "the picture shows {}")).format(listing([noun.number(count) for noun, count in nouns]))


def _place(scene: Scene, rng: Random, _: ShapesConfig) -> str:
    index = rng.randrange(len(scene.shapes))
    region = scene.region(index)
    where = {"top": "at", "bottom": "at", "left": "on", "right": "on"}.get(region, "in") + f" the {region}"
    return rng.choice(("{} is {}", "there is {} {}", "{} {}")).format(described(scene, index, rng).a, where)


def _compare(scene: Scene, rng: Random, config: ShapesConfig) -> str:
    first, second = (Noun(kind=word) for word in rng.sample(config.kinds, 2))
    one, two = first.count(scene.looks), second.count(scene.looks)
    if one == two:
        return _groups(scene, rng, config)
    more, fewer = (first.many, second.many) if one > two else (second.many, first.many)
    return rng.choice((f"there are more {more} than {fewer}", f"there are fewer {fewer} than {more}"))


def _distance(scene: Scene, rng: Random, config: ShapesConfig) -> str:
    first, second = rng.sample(scene.shapes, 2)
    return f"{first.noun.a} {'beside' if neighbours(scene, config) else 'beyond'} {second.noun.a}"


def neighbours(scene: Scene, config: ShapesConfig) -> bool:
    """Return whether the two shapes of a board are in cells side by side."""
    first, second = scene.shapes
    return abs(first.x - second.x) + abs(first.y - second.y) < 1.5 * config.size / config.board


# Forms by the names of ``CAPTIONS``, and how often each is drawn unless the world says which
FORMS: dict[str, tuple[Form, int]] = {
    "single": (_single, 6),
    "absent": (_absent, 2),
    "list": (_list, 4),
    "relation": (_relation, 3),
    "count": (_count, 2),
    "groups": (_groups, 1),
    "place": (_place, 1),
    "compare": (_compare, 1),
    "distance": (_distance, 0),
}


def captions(scene: Scene, rng: Random, config: ShapesConfig) -> list[str]:
    """Return ``config.captions`` true sentences on a picture, all different where its content allows."""
    usual = [form for form, weight in FORMS.values() for _ in range(weight)]
    forms = [FORMS[name][0] for name in config.caption_forms] or usual
    texts: dict[str, None] = {}
    for _ in range(6 * config.captions):
        texts.setdefault(sentence(rng.choice(forms)(scene, rng, config)))
        if len(texts) == config.captions:
            return list(texts)
    return [*texts, *(sentence(_list(scene, rng, config)) for _ in range(config.captions - len(texts)))]


def signature(scene: Scene) -> tuple[tuple[str, str], ...]:
    """Return colours and kinds of all shapes, sorted: what a full description tells."""
    return tuple(sorted((look.colour, look.kind) for look in scene.looks))


def full_description(scene: Scene, rng: Random) -> str:
    """Describe every shape by colour and kind, and their number, so that only pictures of one signature fit."""
    order = list(range(len(scene.shapes)))
    rng.shuffle(order)
    words = listing([described(scene, index, rng).a for index in order])
    frames = ("{n} shapes: {}", "exactly {n} shapes, {}", "the {n} shapes are {}", "only {}, {n} shapes in all")
    return sentence(rng.choice(frames).format(words, n=number_word(len(order))))


def full_descriptions(scene: Scene, rng: Random, count: int) -> list[str]:
    """Return ``count`` different full descriptions of one picture."""
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts.setdefault(full_description(scene, rng))
    return list(texts)
