"""Sentences and pictures apart: each once, however often the examples pair them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcli.data.pipeline import Pipeline
from vlcli.data.sample import Example
from vlcli.errors import DataError


@dataclass
class Sides:
    """The two sides of a data set of pairs.

    Attributes:
        texts: loads every sentence once, as an example called by its name.
        images: loads every picture once, as an example called by its id.
        text_keys: names of the N sentences, in order of first use: the ids that the data give them, else the key of the
            first example that has the sentence. By these, reports and tables find the example and its picture.
        image_keys: ids of the M pictures, in order of first use.
        pairs: (P, 2) sentence and picture that belong together.
    """

    texts: Pipeline
    images: Pipeline
    text_keys: list[str]
    image_keys: list[str]
    pairs: NDArray[np.int64]

    def keep(self, images: list[str]) -> Sides:
        """What is left of it with these pictures alone (the others could not be read), in their order."""
        if images == self.image_keys:
            return self
        places = {name: place for place, name in enumerate(images)}
        rows = np.array([places.get(name, -1) for name in self.image_keys], dtype=np.int64)
        pairs = np.stack([self.pairs[:, 0], rows[self.pairs[:, 1]]], 1)
        pairs = pairs[pairs[:, 1] >= 0]
        texts, place = np.unique(pairs[:, 0], return_inverse=True)
        kept = self.texts.only([self.texts.examples[row] for row in texts.tolist()])
        keys = [self.text_keys[row] for row in texts.tolist()]
        return Sides(kept, self.images, keys, images, np.stack([place.reshape(-1), pairs[:, 1]], 1))


def split(data: Pipeline) -> Sides:
    """Take pairs apart.

    Raises:
        DataError: an example lacks its sentence or its picture, or there is none.
    """
    texts: dict[tuple[str, str], Example] = {}
    rows: dict[tuple[str, str], int] = {}
    images: dict[str, int] = {}
    pairs: dict[tuple[int, int], None] = {}
    for example in data.examples:
        if example.text is None or not example.images:
            raise DataError(
                "Retrieval needs a sentence and a picture in every example.", got=f"example {example.key!r}"
            )
        known = (example.text_key, example.text)  # two data sets may use one id for different sentences
        place = rows.setdefault(known, len(rows))
        texts.setdefault(known, example)
        for name in example.images:
            pairs[place, images.setdefault(name, len(images))] = None
    if not rows:
        raise DataError("There is nothing to rank: the data set is empty.")
    names = _names([one.text_key or one.key for one in texts.values()])
    given = zip(names, texts.values(), strict=True)
    alone = [Example(name, one.text, [], name, {}, one.choices) for name, one in given]
    seen = [Example(name, None, [name]) for name in images]
    found = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
    return Sides(data.only(alone), data.only(seen), names, list(images), found)


def _names(given: list[str]) -> list[str]:
    used: dict[str, int] = {}
    made = []
    for name in given:
        used[name] = used.get(name, 0) + 1
        made.append(name if used[name] == 1 else f"{name} ({used[name]})")
    return made
