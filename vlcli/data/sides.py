"""Splits pairs into sentences and pictures, each loaded once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vlcli.data.pipeline import Pipeline
from vlcli.data.sample import Example
from vlcli.errors import DataError


@dataclass
class Sides:
    """The two sides of a data set of pairs: ``texts`` loads every sentence once, ``images`` every picture.

    Attributes:
        text_keys: names of the N sentences, in order of first use: the data's ids, else the key of the first example
            with the sentence. By these, reports and tables find the example and its picture.
        image_keys: ids of the M pictures, in order of first use.
        pairs: (P, 2) rows of a sentence and its picture.
    """

    texts: Pipeline
    images: Pipeline
    text_keys: list[str]
    image_keys: list[str]
    pairs: NDArray[np.int64]

    def keep(self, images: list[str]) -> Sides:
        """Return these pictures alone (the others could not be read), in this order, with their sentences."""
        if images == self.image_keys:
            return self
        row_of = {name: row for row, name in enumerate(images)}
        rows = np.array([row_of.get(name, -1) for name in self.image_keys], dtype=np.int64)
        pairs = np.stack([self.pairs[:, 0], rows[self.pairs[:, 1]]], 1)
        pairs = pairs[pairs[:, 1] >= 0]
        texts, text_rows = np.unique(pairs[:, 0], return_inverse=True)
        kept = self.texts.only([self.texts.examples[row] for row in texts.tolist()])
        keys = [self.text_keys[row] for row in texts.tolist()]
        return Sides(kept, self.images, keys, images, np.stack([text_rows.reshape(-1), pairs[:, 1]], 1))


def split(data: Pipeline) -> Sides:
    """Split the pairs of ``data``. Raises DataError: an example lacks its sentence or its picture, or there is none."""
    texts: dict[tuple[str, str], tuple[int, Example]] = {}
    images: dict[str, int] = {}
    pairs: dict[tuple[int, int], None] = {}
    for example in data.examples:
        if example.text is None or not example.images:
            what = "Retrieval needs a sentence and a picture in every example."
            raise DataError(what, got=f"example {example.key!r}")
        # two data sets may use one id for different sentences
        row, _ = texts.setdefault((example.text_key, example.text), (len(texts), example))
        for name in example.images:
            pairs[row, images.setdefault(name, len(images))] = None
    if not texts:
        raise DataError("There is nothing to rank: the data set is empty.")
    used: Counter[str] = Counter()
    sentences = []
    for _, example in texts.values():
        name = example.text_key or example.key
        used[name] += 1
        name += f" ({used[name]})" if used[name] > 1 else ""
        sentences.append(Example(name, example.text, [], name, {}, example.choices))
    pictures = [Example(name, None, [name]) for name in images]
    rows_of_pairs = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
    names = [example.key for example in sentences]
    return Sides(data.only(sentences), data.only(pictures), names, list(images), rows_of_pairs)
