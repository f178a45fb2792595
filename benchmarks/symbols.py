"""Scenes of symbols and what is asked of them: the tasks of the learning bench, made in seconds without a picture.

A thing is one of nine looks (three colours by three kinds) in a cell of a four-by-four board. Its feature is the two
one-hot codes with a little noise; its box is its cell, shaken. Every question has one answer that the scene decides,
and chance is one over the number of answers: what can be known is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vlcli.data.reader import Reader
from vlcli.data.sample import Example
from vlcli.features import FeatureWriter, Record

COLOURS, KINDS = ("red", "green", "blue"), ("circle", "square", "triangle")
SIDE, CELL, WIDTH = 4, 32.0, 16
"""Cells a side of the board, pixels of a cell, numbers of a feature."""
EMPTY = len(COLOURS) + len(KINDS)
"""Which number of a grid's feature says that nothing stands in the cell."""
Thing = tuple[int, int, int, int]
"""Colour, kind, row, column."""
Scene = list[Thing]


class Question(NamedTuple):
    """A sentence, the scenes it is asked of, and the number of its answer."""

    text: str
    scenes: list[Scene]
    answer: int


class Task(NamedTuple):
    """What makes a question, how many answers there are, and how many scenes."""

    make: Callable[[np.random.Generator], Question]
    answers: int
    scenes: int = 1


def looks(rng: np.random.Generator, count: int) -> list[tuple[int, int]]:
    """``count`` different looks."""
    return [divmod(int(n), len(KINDS)) for n in rng.permutation(len(COLOURS) * len(KINDS))[:count]]


def placed(rng: np.random.Generator, found: list[tuple[int, int]]) -> Scene:
    """Things of these looks in cells of their own."""
    cells = [divmod(int(n), SIDE) for n in rng.permutation(SIDE * SIDE)[: len(found)]]
    return [(*look, *cell) for look, cell in zip(found, cells, strict=True)]


def name(look: tuple[int, ...]) -> str:
    """``red circle``."""
    return f"{COLOURS[look[0]]} {KINDS[look[1]]}"


def attribute(rng: np.random.Generator) -> Question:
    """Is there a red circle? Four things, half of the time one of them."""
    found, there = looks(rng, 5), int(rng.integers(2))
    return Question(f"is there a {name(found[0])}", [placed(rng, found[:4] if there else found[1:])], there)


def place(rng: np.random.Generator) -> Question:
    """Is the red circle at the top? Four things, the named one in either half."""
    scene, word = placed(rng, looks(rng, 4)), ("top", "bottom", "left", "right")[rng.integers(4)]
    _, _, row, column = scene[0]
    number = row if word in ("top", "bottom") else column
    return Question(
        f"is the {name(scene[0])} at the {word}", [scene], int((number < SIDE // 2) == (word in ("top", "left")))
    )


def relation(count: int) -> Callable[[np.random.Generator], Question]:
    """Where is the red circle, seen from the blue square? They share a row or a column: left, right, above, below."""

    def make(rng: np.random.Generator) -> Question:
        answer, line = int(rng.integers(4)), int(rng.integers(SIDE))
        low, high = sorted(rng.permutation(SIDE)[:2].tolist())
        ends = [(line, low), (line, high)] if answer < 2 else [(low, line), (high, line)]
        first, second = ends if answer in (0, 2) else ends[::-1]
        free = [c for c in (divmod(int(n), SIDE) for n in rng.permutation(SIDE * SIDE)) if c not in ends]
        found = looks(rng, count)
        scene = [(*look, *cell) for look, cell in zip(found, [first, second, *free], strict=False)]
        return Question(f"where is the {name(found[0])} seen from the {name(found[1])}", [scene], answer)

    return make


def same(rng: np.random.Generator) -> Question:
    """Have both things one colour (one kind)?"""
    answer, by_kind = int(rng.integers(2)), int(rng.integers(2))
    while True:
        found = looks(rng, 2)
        if (found[0][by_kind] == found[1][by_kind]) == answer:
            return Question(f"have both the same {('colour', 'kind')[by_kind]}", [placed(rng, found)], answer)


def count(rng: np.random.Generator) -> Question:
    """How many circles (red things) are there? One to four of four things."""
    number, by_kind = int(rng.integers(4)) + 1, int(rng.integers(2))
    wanted = int(rng.integers(3))
    others = [n for n in range(3) if n != wanted]
    values = [wanted] * number + [others[rng.integers(2)] for _ in range(4 - number)]
    found = [(int(rng.integers(3)), value) if by_kind else (value, int(rng.integers(3))) for value in values]
    word = KINDS[wanted] + "s" if by_kind else COLOURS[wanted] + " things"
    return Question(f"how many {word} are there", [placed(rng, found)], number - 1)


def pair(rng: np.random.Generator) -> Question:
    """Is there a red circle in both pictures? False: in one of them."""
    wanted, answer, side = looks(rng, 1)[0], int(rng.integers(2)), int(rng.integers(2))

    def scene(there: bool) -> Scene:
        others = [look for look in looks(rng, 9) if look != wanted]
        return placed(rng, [wanted, *others[:3]] if there else others[:4])

    return Question(
        f"both pictures contain a {name(wanted)}", [scene(bool(answer) or side == n) for n in (0, 1)], answer
    )


TASKS: dict[str, Task] = {
    "attribute": Task(attribute, 2),
    "place": Task(place, 2),
    "relation-2": Task(relation(2), 4),
    "relation-4": Task(relation(4), 4),
    "same": Task(same, 2),
    "count": Task(count, 4),
    "pair": Task(pair, 2, 2),
}


def questions(task: str, number: int, seed: int) -> Iterator[Question]:
    """``number`` questions of a task, the same for the same seed."""
    rng = np.random.default_rng([seed, *task.encode()])
    return (TASKS[task].make(rng) for _ in range(number))


class Symbols(Reader):
    """Questions as examples; the label is the answer's number."""

    def __init__(self, asked: list[Question], prefix: str) -> None:
        super().__init__(Path())
        self.asked, self.prefix = asked, prefix

    def files(self) -> list[Path]:
        """None: they are made."""
        return []

    def read(self) -> list[Example]:
        """Every question, its scenes named by number."""
        return [
            Example(
                f"{n}", one.text, [f"{self.prefix}{n}-{k}" for k in range(len(one.scenes))], "", {"label": one.answer}
            )
            for n, one in enumerate(self.asked)
        ]


def write(path: Path, asked: dict[str, list[Question]], grid: bool, seed: int) -> None:
    """A feature store of all scenes: things as regions, or every cell of the board as one of a grid."""
    rng = np.random.default_rng(seed)
    writer = FeatureWriter(path, {"extractor": "symbols"}, dtype="float32", flush_every=5000, resume=False)
    for prefix, listed in asked.items():
        for n, one in enumerate(listed):
            for k, scene in enumerate(one.scenes):
                features, boxes = _cells(scene, rng) if grid else _regions(scene, rng)
                writer.append(Record(f"{prefix}{n}-{k}", features, boxes, (128, 128)))
    writer.finish()


def _regions(scene: Scene, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    order = [scene[n] for n in rng.permutation(len(scene))]
    corner = np.array([(column, row) for _, _, row, column in order]) * CELL + 6 + rng.uniform(-4, 4, (len(order), 2))
    features = _noise(rng, len(order))
    for row, thing in enumerate(order):
        _mark(features[row], thing)
    return features, np.concatenate([corner, corner + 20], 1).astype("float32")


def _cells(scene: Scene, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    features = _noise(rng, SIDE * SIDE)
    features[:, EMPTY] += 1  # noise alone would be normalised to a vector as long as a thing's
    for thing in scene:
        features[thing[2] * SIDE + thing[3], EMPTY] -= 1
        _mark(features[thing[2] * SIDE + thing[3]], thing)
    corner = np.array([(c, r) for r in range(SIDE) for c in range(SIDE)]) * CELL
    return features, np.concatenate([corner, corner + CELL], 1).astype("float32")


def _noise(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.normal(0, 0.05, (count, WIDTH)).astype("float32")


def _mark(feature: np.ndarray, thing: Thing) -> None:
    feature[thing[0]] += 1
    feature[len(COLOURS) + thing[1]] += 1
