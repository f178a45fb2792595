"""Stores visual concepts: the words seen in an image, best first, with their best boxes.

They are a box set, :data:`CONCEPTS`, in the file of the regions or in another one: a row is a concept, its ``classes``
the word's number in the provenance's ``words``, its ``class_scores`` the probability; features have width 0.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vlcli.errors import DataError
from vlcli.features.file import set_names
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import CONCEPT_SET, Record

CONCEPTS = CONCEPT_SET
"""Name of the box set."""
WORDS = "words"
"""Key of the provenance: the vocabulary, in the order of the ids."""
FIELDS = ("classes", "class_scores")


def concept_record(
    image: str, ids: ArrayLike, scores: ArrayLike, size: tuple[int, int], boxes: ArrayLike | None = None
) -> Record:
    """Make the record of an image's concepts.

    Args:
        ids: word numbers (K,), best first.
        scores: probabilities (K,).
        size: height and width of the image in pixels.
        boxes: (K, 4) in pixels; None: the whole image.
    """
    numbers = np.asarray(ids, np.int32).reshape(-1)
    if boxes is None:
        boxes = np.tile(np.array([0, 0, size[1], size[0]], np.float32), (len(numbers), 1))
    return Record(
        id=image,
        features=np.zeros((len(numbers), 0), np.float16),
        boxes=np.asarray(boxes, np.float32).reshape(-1, 4),
        size=size,
        classes=numbers,
        class_scores=np.asarray(scores, np.float32).reshape(-1),
    )


def sort_files(paths: Sequence[str | Path]) -> tuple[list[Path], list[Path]]:
    """Return the files that hold regions, and those that hold concepts; one file may hold both."""
    files = [file for path in paths for file in FeatureStore(path).paths]
    held = {file: set(set_names(file)) for file in files}
    return [file for file in files if held[file] - {CONCEPTS}], [file for file in files if CONCEPTS in held[file]]


class ConceptStore:
    """Visual concepts by image id, the ``concepts`` of a ``vlcli.data.pipeline.Pipeline``.

    Args:
        paths: a file with a set of concepts, or several shards.
        top: most concepts of an image; None: all.
    """

    def __init__(self, paths: str | Path | Sequence[str | Path], top: int | None = None) -> None:
        self.store, self.top = FeatureStore(paths, CONCEPTS, hint="extract them: vlcli extract"), top

    @property
    def words(self) -> tuple[str, ...]:
        """The vocabulary: word of each id; a DataError where there is none, or files have different ones."""
        first, *others = {tuple(map(str, part.provenance.get(WORDS, ()))) for part in self.store.parts()} or {()}
        if others or not first:
            got = f"{1 + len(others)} different vocabularies" if others else "no words"
            raise DataError("The concepts cannot be named.", where=self.store.where, got=got, expected="one vocabulary")
        return first

    def read(self, name: str) -> dict[str, NDArray[Any]]:
        columns = self.store.read(name, FIELDS, copy=False).arrays()
        return {"ids": columns["classes"][: self.top], "scores": columns["class_scores"][: self.top]}

    def named(self, name: str) -> list[tuple[str, float]]:
        """Return an image's words with their probabilities, best first."""
        words, rows = self.words, self.read(name)
        return [(words[i], float(p)) for i, p in zip(rows["ids"].tolist(), rows["scores"].tolist(), strict=True)]

    def __contains__(self, name: object) -> bool:
        return name in self.store

    def __len__(self) -> int:
        return len(self.store)
