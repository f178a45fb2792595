"""Visual concepts in a feature store: the words seen in an image, best first, each where it is seen best.

They are a box set of their own, :data:`CONCEPTS`, in the file of the regions or in another one: a row is a concept, its
``classes`` the word's number, its ``class_scores`` the word's probability, its box the place that speaks for it most.
The words themselves are the provenance's ``words``. Such a set has no features (their width is 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vlcli.errors import DataError
from vlcli.features.inspect import set_names
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import CONCEPT_SET, Record

CONCEPTS = CONCEPT_SET
"""Name of the box set."""
WORDS = "words"
"""Key of the provenance: the vocabulary, in the order of the ids."""
FIELDS = ("classes", "class_scores")


def concept_record(
    image: str,
    ids: ArrayLike,
    scores: ArrayLike,
    size: tuple[int, int],
    boxes: ArrayLike | None = None,
) -> Record:
    """The record of an image's concepts.

    Args:
        image: image id.
        ids: word numbers (K,), best first.
        scores: their probabilities (K,).
        size: height and width of the image in pixels.
        boxes: where each is seen (K, 4) in pixels; None: the whole image.
    """
    numbers = np.asarray(ids, np.int32).reshape(-1)
    height, width = size
    places = np.tile(np.array([0, 0, width, height], np.float32), (len(numbers), 1)) if boxes is None else boxes
    return Record(
        id=image,
        features=np.zeros((len(numbers), 0), np.float16),
        boxes=np.asarray(places, np.float32).reshape(-1, 4),
        size=size,
        classes=numbers,
        class_scores=np.asarray(scores, np.float32).reshape(-1),
    )


def sort_files(paths: Sequence[str | Path]) -> tuple[list[Path], list[Path]]:
    """The files that hold regions, and those that hold concepts; one file may hold both."""
    files = [file for path in paths for file in FeatureStore(path).paths]
    held = {file: set(set_names(file)) for file in files}
    return [file for file in files if held[file] - {CONCEPTS}], [file for file in files if CONCEPTS in held[file]]


class ConceptStore:
    """Visual concepts by image id: what a ``vlcli.data.pipeline.Pipeline`` reads as ``concepts``.

    Args:
        paths: files that hold a set of concepts, one or several shards.
        top: only so many of each image; None: all that are stored.
    """

    def __init__(self, paths: str | Path | Sequence[str | Path], top: int | None = None) -> None:
        given = [paths] if isinstance(paths, str | Path) else list(paths)
        self.store, self.top = FeatureStore(list(given), CONCEPTS, hint="extract them: vlcli extract"), top

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary: word of each id.

        Raises:
            DataError: the store does not say, or its files were made with different words.
        """
        found = {tuple(map(str, part.provenance.get(WORDS, ()))) for part in self.store.parts()}
        if len(found) != 1 or found == {()}:
            got = "no words" if found == {()} else f"{len(found)} different vocabularies"
            raise DataError("The concepts cannot be named.", where=self.store.where, got=got, expected="one vocabulary")
        return found.pop()

    def read(self, name: str) -> dict[str, NDArray[Any]]:
        """``ids`` and ``scores`` of an image, best first."""
        record = self.store.read(name, FIELDS, copy=False)
        assert record.classes is not None
        assert record.class_scores is not None
        return {"ids": record.classes[: self.top], "scores": record.class_scores[: self.top]}

    def named(self, name: str) -> list[tuple[str, float]]:
        """The words of an image with their probabilities, best first."""
        words, found = self.words, self.read(name)
        return [(words[i], float(p)) for i, p in zip(found["ids"].tolist(), found["scores"].tolist(), strict=True)]

    def __contains__(self, name: object) -> bool:
        return name in self.store

    def __len__(self) -> int:
        return len(self.store)
