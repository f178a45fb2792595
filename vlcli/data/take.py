"""Holding out photographs: which part of a data set is used, decided by image.

``take`` of every reader says it:

====================  =====================================================================================
``first:1161``        the first 1,161 images of a fixed shuffle of this data set's images
``after:1161``        all the others
``first:0.85``        images whose number in [0, 1), made from their id alone, is below 0.85
``after:0.85``        all the others
``first:0.85:7``      the same with another shuffle (seed 7; 0 where none is given)
``between:0.8:0.9``   images whose number is 0.8 or more and below 0.9; ``between:0.8:0.9:7`` with seed 7
``in:FILE``           the images that FILE lists, one id or file name a line (the first word of a line counts)
``not-in:FILE``       all the others
====================  =====================================================================================

``first:0.8``, ``between:0.8:0.9`` and ``after:0.9`` are three disjoint parts for training, validation and testing.
Whatever the kind, an image's captions, questions and boxes go together, ``first`` and ``after`` (``in`` and ``not-in``)
are disjoint and together everything. Counts give exact numbers within one file. Shares depend on ids alone, so that
captions, questions and boxes of the same photographs are divided alike even where the files list different subsets.
Images that one example shows side by side (NLVR2) go together too: a group of them counts as one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from vlcli.data.files import inside, read_text
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.boxes import image_id


def select(examples: Sequence[Example], take: str, root: Path) -> list[Example]:
    """The examples whose images ``take`` chooses, in their order.

    Raises:
        DataError: ``take`` is not understood, or its file is missing.
    """
    return [examples[row] for row in select_rows(examples, take, root)]


def select_rows(examples: Sequence[Example], take: str, root: Path) -> list[int]:
    """The numbers of the examples whose images ``take`` chooses, ascending.

    Raises:
        DataError: ``take`` is not understood, or its file is missing.
    """
    kind, _, rest = take.partition(":")
    groups = _groups(examples)
    if kind in ("first", "after"):
        chosen = _first(sorted(set(groups)), rest, take)
    elif kind == "between":
        chosen = _between(set(groups), rest, take)
    elif kind in ("in", "not-in") and rest:
        listed = _listed(inside(root, rest))
        chosen = {group for group, example in zip(groups, examples, strict=True) if listed & set(example.images)}
    else:
        raise _unclear(take)
    wanted = kind in ("first", "between", "in")
    return [row for row, group in enumerate(groups) if (group in chosen) is wanted]


def _first(groups: list[str], rest: str, take: str) -> set[str]:
    size, _, seed = rest.partition(":")
    try:
        number = _number(int(seed or 0))
        if "." in size:
            share = float(size)
            return {group for group in groups if number(group) < share}
        return set(sorted(groups, key=number)[: int(size)])
    except ValueError:
        raise _unclear(take) from None


def _between(groups: set[str], rest: str, take: str) -> set[str]:
    low, _, tail = rest.partition(":")
    high, _, seed = tail.partition(":")
    try:
        if "." not in low or "." not in high:
            raise _unclear(take)
        number = _number(int(seed or 0))
        return {group for group in groups if float(low) <= number(group) < float(high)}
    except ValueError:
        raise _unclear(take) from None


def _number(seed: int) -> Callable[[str], float]:
    """A fixed number in [0, 1) for each id."""

    def of(name: str) -> float:
        return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:6], "big") / 2**48

    return of


def _groups(examples: Sequence[Example]) -> list[str]:
    """Each example's group: the smallest id among the images that are linked to its own; a text stands for itself."""
    parent: dict[str, str] = {}

    def root_of(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for example in examples:
        for other in example.images[1:]:
            low, high = sorted((root_of(example.images[0]), root_of(other)))
            parent[high] = low
    return [root_of(e.images[0]) if e.images else f"text/{e.text_key or e.text}" for e in examples]


def _listed(path: Path) -> set[str]:
    return {image_id(line.split()[0]) for line in read_text(path).splitlines() if line.strip()}


def _unclear(take: str) -> DataError:
    return DataError(
        "It is not clear which part of the data is meant.",
        where="take",
        got=take,
        expected="first:N, after:N, first:SHARE, after:SHARE, between:SHARE:SHARE, in:FILE or not-in:FILE",
        hint="a share has a point, e.g. first:0.9",
    )
