"""What the shapes tests share: one small world, and a reader of its sentences that knows nothing of the generator.

Truth is recomputed from boxes, categories and attributes of the written COCO instances alone.
"""

from __future__ import annotations

import atexit
import json
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from vlcli.data.shapes import STATEMENTS, ShapesConfig, make_shapes
from vlcli.progress import Silent

SMALL = ShapesConfig(
    seed=3,
    images=260,
    nlvr2_train=64 * 8,
    nlvr2_dev=32 * 8,
    nlvr2_test=32 * 8,
    statements=STATEMENTS,
    albums=8,
    imagenet=80,
    ade20k=15,
)
NUMBERS = {
    word: value
    for value, word in enumerate(["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"])
}


class Thing(NamedTuple):
    """One object as its annotation tells it; the box is x, y, width, height."""

    kind: str
    colour: str
    size: str
    box: tuple[float, float, float, float]

    @property
    def centre(self) -> tuple[float, float]:
        return self.box[0] + self.box[2] / 2, self.box[1] + self.box[3] / 2


@cache
def small_world() -> Path:
    """The world of ``SMALL``, made once per test process."""
    root = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    make_shapes(root / "world", SMALL, Silent())
    return root / "world"


def read(path: str) -> dict:
    return json.loads((small_world() / path).read_text())


def read_lines(path: str) -> list[dict]:
    return [json.loads(line) for line in (small_world() / path).read_text().splitlines()]


def things(path: str) -> dict[str, list[Thing]]:
    """File name to objects, out of a COCO instances file of the small world."""
    return things_of(small_world() / path)


def things_of(path: Path) -> dict[str, list[Thing]]:
    """File name to objects, out of a COCO instances file."""
    document = json.loads(path.read_text())
    kinds = {row["id"]: row["name"] for row in document["categories"]}
    words = {row["id"]: (row["supercategory"], row["name"]) for row in document["attribute_categories"]}
    names = {row["id"]: row["file_name"] for row in document["images"]}
    found: dict[str, list[Thing]] = defaultdict(list)
    for row in document["annotations"]:
        given = dict(words[number] for number in row["attributes"])
        thing = Thing(kinds[row["category_id"]], given["colour"], given["size"], tuple(row["bbox"]))
        found[names[row["image_id"]]].append(thing)
    return {name: found[name] for name in names.values()}


def noun(text: str) -> Callable[[Thing], bool]:
    """The objects that words like ``small red circles`` describe."""
    wanted = [re.sub(r"(?<=cross)es$|s$(?<!ss)", "", word) for word in text.split()]
    wanted = [word for word in wanted if word not in ("a", "an", "the", "shape")]
    return lambda thing: set(wanted) <= {thing.kind, thing.colour, thing.size}


def matching(text: str, found: list[Thing]) -> list[Thing]:
    return [thing for thing in found if noun(text)(thing)]


def stands(one: Thing, relation: str, two: Thing) -> bool:
    """A relation by box centres, without any margin."""
    (x, y), (other_x, other_y) = one.centre, two.centre
    return {"left": x < other_x, "right": x > other_x, "above": y < other_y, "below": y > other_y}[relation]


def related(first: str, relation: str, second: str, found: list[Thing]) -> bool:
    pairs = [(one, two) for one in matching(first, found) for two in matching(second, found) if one is not two]
    return any(stands(one, relation, two) for one, two in pairs)


A = r"(an? [a-z ]+?)"
MANY = r"([a-z ]+?)"
SIDE = r"(left|right)"
WHERE = r"(left|right|above|below)(?: of)?"
Pictures = dict[str, list[Thing]]
Rule = Callable[[Pictures, tuple[str, ...]], bool]


def _bound(pictures: Pictures, groups: tuple[str, ...]) -> bool:
    sort, number, words = groups
    total = sum(len(matching(words, found)) for found in pictures.values())
    wanted = NUMBERS[number]
    return {
        "exactly": total == wanted,
        "at least": total >= wanted,
        "at most": total <= wanted,
        "fewer than": total < wanted,
    }[sort]


def _more(pictures: Pictures, side: str, word: str, words: str) -> bool:
    mine = len(matching(words, pictures[side]))
    other = len(matching(words, pictures["right" if side == "left" else "left"]))
    return mine > other if word == "more" else mine < other


def _holders(pictures: Pictures, words: str) -> int:
    return sum(bool(matching(words, found)) for found in pictures.values())


def _colour_of(pictures: Pictures, kind: str, side: str, colour: str) -> bool:
    (only,) = matching(kind, pictures[side])
    return only.colour == colour


RULES: list[tuple[str, Rule]] = [
    (rf"each picture contains {A}", lambda p, g: _holders(p, g[0]) == 2),
    (rf"both pictures contain {A}", lambda p, g: _holders(p, g[0]) == 2),
    (rf"there is {A} in (?:both pictures|each picture)", lambda p, g: _holders(p, g[0]) == 2),
    (rf"the left picture and the right picture both show {A}", lambda p, g: _holders(p, g[0]) == 2),
    (rf"exactly one of the pictures contains {A}", lambda p, g: _holders(p, g[0]) == 1),
    (rf"only one of the two pictures shows {A}", lambda p, g: _holders(p, g[0]) == 1),
    (rf"there is {A} in only one picture", lambda p, g: _holders(p, g[0]) == 1),
    (rf"one picture contains {A} and the other does not", lambda p, g: _holders(p, g[0]) == 1),
    (rf"at least one of the pictures contains {A}", lambda p, g: _holders(p, g[0]) >= 1),
    (rf"there is {A} in at least one picture", lambda p, g: _holders(p, g[0]) >= 1),
    (rf"{A} is in one picture or in both", lambda p, g: _holders(p, g[0]) >= 1),
    (rf"there is {A} {WHERE} {A} in the {SIDE} picture", lambda p, g: related(*g[:3], p[g[3]])),
    (rf"{A} is {WHERE} {A} in the {SIDE} picture", lambda p, g: related(*g[:3], p[g[3]])),
    (rf"in the {SIDE} picture {A} is {WHERE} {A}", lambda p, g: related(*g[1:], p[g[0]])),
    (rf"the {SIDE} picture contains {A}", lambda p, g: bool(matching(g[1], p[g[0]]))),
    (rf"there is {A} in the {SIDE} picture", lambda p, g: bool(matching(g[0], p[g[1]]))),
    (rf"the picture on the {SIDE} shows {A}", lambda p, g: bool(matching(g[1], p[g[0]]))),
    (rf"{A} is in the {SIDE} picture", lambda p, g: bool(matching(g[0], p[g[1]]))),
    (
        rf"there are (more|fewer) {MANY} in the {SIDE} picture than in the {SIDE} picture",
        lambda p, g: _more(p, g[2], g[0], g[1]),
    ),
    (
        rf"the {SIDE} picture (?:has|contains) (more|fewer) {MANY} than the {SIDE} (?:picture|one)",
        lambda p, g: _more(p, *g[:3]),
    ),
    (rf"there (?:are|is) (exactly|at least|at most|fewer than) ([a-z]+) {MANY} in total", _bound),
    (rf"the two pictures contain (exactly) ([a-z]+) {MANY} in all", _bound),
    (rf"there (?:are|is) (exactly) ([a-z]+) {MANY} in the two pictures together", _bound),
    (rf"the ([a-z]+) in the {SIDE} picture is ([a-z]+)", lambda p, g: _colour_of(p, *g)),
    (rf"in the {SIDE} picture the ([a-z]+) is ([a-z]+)", lambda p, g: _colour_of(p, g[1], g[0], g[2])),
]


def judge(text: str, pictures: Pictures) -> bool:
    """Whether an NLVR2 sentence is true of ``{"left": objects, "right": objects}``."""
    plain = text[0].lower() + text[1:].rstrip(".")
    for pattern, rule in RULES:
        found = re.fullmatch(pattern, plain)
        if found:
            return rule(pictures, found.groups())
    raise AssertionError(f"no rule reads {text!r}")
