"""Captions of scenes of symbols: "two red circles to the left of a blue square", and the same with one false detail.

A scene has one thing of a look and two or three of another, in opposite halves of the board; one of the group shares
the row or column of the single thing, so that one relation holds and the three others do not. Every word of colour,
kind, number and place is decided by the scene: what can be known of a hidden one is 1. Here are also the objectives
that ``objectives.py`` compares on these captions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from symbols import COLOURS, SIDE, Question, Scene, looks, name

from vlcli import registry

RELATIONS = ("to the left of", "to the right of", "above", "below")
PLACES = ("left", "right", "above", "below")
"""The word of each relation that says where; the words around a hidden one tell the axis."""
NUMBERS = ("a", "two", "three")
FOILS: dict[str, dict[str, Any]] = {
    "other-attribute": {"groups": [list(COLOURS)], "builtin": False},
    "other-number": {"most": len(NUMBERS)},
    "turned-relation": {"opposites": [RELATIONS[:2], RELATIONS[2:]], "builtin": False},
    "swapped-names": {},
}
"""Rewrites that use the words of the captions alone: a word that no true caption has would give a foil away."""


def rewrites() -> list[dict[str, Any]]:
    """The foils as an objective takes them."""
    return [{"name": kind, **options} for kind, options in FOILS.items()]


MASKED: dict[str, Any] = {"name": "mlm", "probability": 0.3}
COMPARED: dict[str, dict[str, list[dict[str, Any]]]] = {
    "masking": {
        "random": [MASKED],
        "role": [{**MASKED, "roles": ["place"]}],
        "phrase": [{**MASKED, "phrase": True}],
    },
    "matching": {
        "random": [{"name": "matching"}],
        "foils": [{"name": "matching", "foils": 0.5, "rewrites": rewrites()}],
    },
}
"""The variants of each comparison; the first is what the others are measured by."""
START = {"matching": [{**MASKED, "roles": ["place"]}]}
"""What every variant of a comparison is trained on before."""
PROBE = {
    "name": "mlm",
    "probability": 1.0,
    "mask_share": 1.0,
    "random_share": 0.0,
    "roles": [{"name": "words", "words": list(PLACES)}],
}
"""Hides the word of place, and no other."""


def caption(rng: np.random.Generator) -> Question:
    """A scene, what is true of it, and the number of the relation."""
    found, relation, number = looks(rng, 2), int(rng.integers(4)), int(rng.integers(2, 4))
    single_first = bool(rng.integers(2))
    low = (relation in (0, 2)) == single_first  # whether the single thing is in the upper or left half
    scene = _apart(rng, found, number, low, upright=relation >= 2)
    words = [f"a {name(found[0])}", f"{NUMBERS[number - 1]} {name(found[1])}s"]
    first, second = words if single_first else words[::-1]
    return Question(f"{first} {RELATIONS[relation]} {second}", [scene], relation)


def _apart(rng: np.random.Generator, found: list[tuple[int, int]], number: int, low: bool, upright: bool) -> Scene:
    """One thing, and a group in the other half that begins on its line."""
    half, line = SIDE // 2, int(rng.integers(SIDE))
    near, far = (0, half) if low else (half, 0)
    first = (far + int(rng.integers(half)), line)
    free = [(far + across, along) for across in range(half) for along in range(SIDE)]
    free.remove(first)
    rest = [free[n] for n in rng.permutation(len(free))[: number - 1]]
    cells = [(near + int(rng.integers(half)), line), first, *rest]
    looked = [found[0]] + [found[1]] * number
    return [
        (*look, *((across, along) if upright else (along, across)))
        for look, (across, along) in zip(looked, cells, strict=True)
    ]


def captions(number: int, seed: int) -> Iterator[Question]:
    """``number`` true captions, the same for the same seed."""
    rng = np.random.default_rng([seed, *b"captions"])
    return (caption(rng) for _ in range(number))


def statements(number: int, seed: int) -> list[Question]:
    """Of each scene its caption and one foil of every kind; the answer is 0 for the caption, else the kind's number."""
    rng = np.random.default_rng([seed, *b"foils"])
    made = [registry.build("rewrites", spec) for spec in rewrites()]
    found = []
    for true in captions(number, seed):
        texts = [true.text, *(rewrite(true.text, rng) for rewrite in made)]
        found += [Question(text, true.scenes, kind) for kind, text in enumerate(texts)]
    return found
