"""Shapes, scenes and what is true of them: sampling, placing, nouns, relations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from random import Random
from typing import NamedTuple

from vlcli.data.shapes.config import SIZES, ShapesConfig

RELATIONS = ("left", "right", "above", "below")
OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
RADII = {"small": (8.5, 10.5), "large": (15.5, 18.5)}  # pixels of a 112-pixel picture
MARGIN = 0.1  # of the picture's side: nearer centres stand in no relation that a text may name
TURNS = 5


class Look(NamedTuple):
    """Size, colour and kind of a shape."""

    size: str
    colour: str
    kind: str


class Noun(NamedTuple):
    """A description of shapes; an empty attribute matches every value."""

    size: str = ""
    colour: str = ""
    kind: str = ""

    def matches(self, look: Look) -> bool:
        return self.kind in ("", look.kind) and self.colour in ("", look.colour) and self.size in ("", look.size)

    def count(self, looks: Sequence[Look]) -> int:
        return sum(self.matches(look) for look in looks)

    @property
    def one(self) -> str:
        return " ".join(word for word in (self.size, self.colour, self.kind or "shape") if word)

    @property
    def many(self) -> str:
        return self.one + ("es" if self.one.endswith("s") else "s")

    @property
    def a(self) -> str:
        return ("an " if self.one[0] in "aeiou" else "a ") + self.one

    def number(self, count: int) -> str:
        return f"{number_word(count)} {self.one if count == 1 else self.many}"


def number_word(count: int) -> str:
    """Return numbers as the statements write them."""
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[count] if count < len(words) else str(count)


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape in its place; ``x``, ``y`` is its centre and ``radius`` half its extent, in pixels."""

    look: Look
    x: int
    y: int
    radius: int
    turn: int
    tint: tuple[int, int, int]

    @property
    def noun(self) -> Noun:
        return Noun("", self.look.colour, self.look.kind)


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture's content: its shapes in painting order and its background."""

    side: int
    shapes: tuple[Shape, ...]
    ground: tuple[int, int, int]
    slope: tuple[int, int]
    grain: int

    @property
    def looks(self) -> list[Look]:
        return [shape.look for shape in self.shapes]

    def having(self, noun: Noun) -> list[int]:
        return [index for index, shape in enumerate(self.shapes) if noun.matches(shape.look)]

    def stands(self, first: int, relation: str, second: int) -> bool:
        """Return whether the first shape is ``relation`` (of) the second by more than the margin."""
        return self._ahead(first, relation, second) >= MARGIN * self.side

    def clearly_not(self, first: int, relation: str, second: int) -> bool:
        """Return whether the first shape stands on the other side by the margin."""
        return self._ahead(first, relation, second) <= -0.3 * MARGIN * self.side

    def _ahead(self, first: int, relation: str, second: int) -> int:
        one, two = self.shapes[first], self.shapes[second]
        across, down = two.x - one.x, two.y - one.y
        return {"left": across, "right": -across, "above": down, "below": -down}[relation]

    def relations(self) -> Iterator[tuple[int, str, int]]:
        for first, second in permutations(range(len(self.shapes)), 2):
            yield from ((first, word, second) for word in RELATIONS if self.stands(first, word, second))

    def region(self, index: int) -> str:
        """Return the ninth of the picture that a shape's centre lies in: ``top left``, ``left``, ``middle``."""
        shape = self.shapes[index]
        column = "left" if shape.x < 0.38 * self.side else "right" if shape.x > 0.62 * self.side else ""
        row = "top" if shape.y < 0.38 * self.side else "bottom" if shape.y > 0.62 * self.side else ""
        return " ".join(word for word in (row, column) if word) or "middle"


@dataclass(slots=True)
class Picture:
    """A scene, where it is written, and (once drawn) the exact geometry of its shapes."""

    id: int
    file: str
    scene: Scene
    drawn: list[Drawn] = field(default_factory=list)


class Drawn(NamedTuple):
    """One drawn shape: visible box (x, y, width, height), area in pixels, run lengths of its mask by columns."""

    box: tuple[int, int, int, int]
    area: int
    counts: list[int]


def stream(config: ShapesConfig, *names: str) -> Random:
    """Return the generator of one part and split: parts do not disturb one another's draws."""
    return Random("/".join((str(config.seed), *names)))


def random_colour(rng: Random, low: int, high: int) -> tuple[int, int, int]:
    """Return red, green and blue from ``low`` to ``high``."""
    return rng.randint(low, high), rng.randint(low, high), rng.randint(low, high)


def random_look(rng: Random, config: ShapesConfig) -> Look:
    """Return one of all looks, uniformly."""
    return Look(rng.choice(SIZES), rng.choice(config.colours), rng.choice(config.kinds))


def random_looks(rng: Random, config: ShapesConfig, count: int) -> list[Look]:
    """Return looks that sometimes share a kind or a colour, so that there is something to count and to tell apart."""
    looks: list[Look] = []
    for _ in range(count):
        look, draw = random_look(rng, config), rng.random()
        if looks and draw < 0.4:
            name = "kind" if draw < 0.2 else "colour"
            look = look._replace(**{name: getattr(rng.choice(looks), name)})
        looks.append(look)
    return looks


def fill(
    rng: Random, config: ShapesConfig, required: Sequence[Look], total: int, without: Sequence[Noun] = ()
) -> list[Look]:
    """Return ``required`` and random others up to ``total``, none of the others described by ``without``; shuffled."""
    looks = list(required)
    while len(looks) < total:
        look = random_look(rng, config)
        if not any(noun.matches(look) for noun in without):
            looks.append(look)
    rng.shuffle(looks)
    return looks


def concrete(rng: Random, config: ShapesConfig, noun: Noun) -> Look:
    """Return a random look that ``noun`` describes."""
    look = random_look(rng, config)
    return Look(noun.size or look.size, noun.colour or look.colour, noun.kind or look.kind)


def compose(
    rng: Random, config: ShapesConfig, looks: Sequence[Look], accept: Callable[[Scene], bool] | None = None
) -> Scene:
    """Place ``looks``, in painting order, at random with little overlap until ``accept`` holds."""
    while True:
        shapes, light = _place(rng, config.size, looks), rng.randint(212, 236)
        red, green, blue = (min(248, light + number) for number in random_colour(rng, -14, 14))
        slope = (rng.randint(-14, 14), rng.randint(-14, 14))
        scene = Scene(config.size, shapes, (red, green, blue), slope, rng.randrange(1 << 30))
        if accept is None or accept(scene):
            return scene


def board(rng: Random, config: ShapesConfig, side: int, cells: Mapping[tuple[int, int], tuple[str, str]]) -> Scene:
    """Return a board of ``side`` cells a side with an upright shape, of a colour and a kind, in each of ``cells``."""
    cell = config.size / side
    radius = int(cell / 2) - 2  # the window of a sprite is three pixels wider than the shape
    shapes = []
    for place, (colour, kind) in cells.items():
        look, (x, y) = Look("small", colour, kind), (int((number + 0.5) * cell) for number in place)
        shapes.append(Shape(look, x, y, radius, TURNS // 2, random_colour(rng, -20, 20)))
    grey = random_colour(rng, 120, 136)  # near zero once channels are normalised
    return Scene(config.size, tuple(shapes), grey, (0, 0), rng.randrange(1 << 30))


def apart(rng: Random, config: ShapesConfig) -> Scene:
    """Return a board of ``config.board`` cells a side with two shapes, half of the time beside one another."""
    looks = rng.sample([*product(config.colours, config.kinds)], 2)
    beside, places = rng.random() < 0.5, [*product(range(config.board), range(config.board))]
    while True:
        first, second = rng.sample(places, 2)
        steps = sorted(abs(one - two) for one, two in zip(first, second, strict=True))
        if steps == [0, 1] if beside else steps[1] > 1:
            return board(rng, config, config.board, dict(zip((first, second), looks, strict=True)))


def _place(rng: Random, side: int, looks: Sequence[Look]) -> tuple[Shape, ...]:
    scale = side / 112
    while True:
        taken: list[tuple[int, int, int]] = []
        for look in looks:
            radius = max(4, round(scale * rng.uniform(*RADII[look.size])))
            spot = _spot(rng, side, radius, taken)
            if spot is None:
                break
            taken.append((*spot, radius))
        else:
            return tuple(
                Shape(look, *spot, rng.randrange(TURNS), random_colour(rng, -12, 12))
                for look, spot in zip(looks, taken, strict=True)
            )
        scale *= 0.985


def _spot(rng: Random, side: int, radius: int, taken: list[tuple[int, int, int]]) -> tuple[int, int] | None:
    edge = radius + 2
    span = side - 2 * edge
    for _ in range(30):
        x, y = edge + int(rng.random() * span), edge + int(rng.random() * span)
        if all(math.hypot(x - other_x, y - other_y) >= 0.92 * (radius + other) for other_x, other_y, other in taken):
            return x, y
    return None
