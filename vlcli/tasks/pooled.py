"""Pictures as one short vector each, for baselines: pooled features, else thumbnails, in their principal axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlcli.data.images import PictureError, load_image
from vlcli.data.sample import Example
from vlcli.features import FeatureStore
from vlcli.tasks.correlation import Axes, Rows
from vlcli.tasks.pairs import mean_features

DIMS = 256  # Most principal axes that are kept
THUMBNAIL = 8  # Pixels of a thumbnail's sides


@dataclass(frozen=True)
class Pooled:
    """Vectors of pictures in the principal axes of the pictures that are fitted on.

    Axes keep their variances, whose mean is 1: with all variances 1, axes of noise count as much as those that tell
    pictures apart (on DAQUAR the multiplied network loses .011).

    Attributes:
        places: row of each picture.
        vectors: (N, K).
    """

    places: dict[str, int]
    vectors: Rows

    @classmethod
    def of(cls, known: Sequence[Example], asked: Sequence[Example], store: FeatureStore | None, files: Any) -> Pooled:
        """Read the pictures of all examples, and find the axes of those that are known.

        Args:
            known: examples that are fitted on.
            asked: examples that are scored.
            store: region features, whose mean is a picture's; None: thumbnails of the files are read.
            files: path of each picture; read where there is no store.

        Raises:
            DataError: all known pictures are the same, or there is none.
        """
        fitted = list(dict.fromkeys(name for example in known for name in example.images))
        names = list(dict.fromkeys([*fitted, *(name for example in asked for name in example.images)]))
        rows = mean_features(store, names) if store is not None else _thumbnails(names, files)
        mean = rows[: len(fitted)].mean(0)
        rows -= mean
        axes = Axes.of(mean, rows[: len(fitted)].T @ rows[: len(fitted)] / len(fitted), "pictures")
        kept = max(1, min(DIMS, rows.shape[1], len(fitted) - 1))
        size = np.sqrt(axes.spread[-kept:].mean())
        places = {name: place for place, name in enumerate(names)}
        return cls(places, rows @ axes.axes[:, -kept:] / size)

    def rows(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """(N, P * K) vectors of each example's P pictures one after the other; zeros where it has fewer."""
        most, width = max(len(example.images) for example in examples), self.vectors.shape[1]
        made = np.zeros((len(examples), most, width), np.float32)
        for row, example in zip(made, examples, strict=True):
            row[: len(example.images)] = self.vectors[[self.places[name] for name in example.images]]
        return made.reshape(len(examples), most * width)


def _thumbnails(names: Sequence[str], files: Any) -> Rows:
    # (N, 192) colours of thumbnails in [0, 1]; grey where a picture cannot be read
    made = np.full((len(names), THUMBNAIL * THUMBNAIL * 3), 0.5)
    for row, name in zip(made, names, strict=True):
        try:
            small = load_image(files[name]).resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
        except PictureError:  # whether such examples are left out or are an error was decided when they were opened
            continue
        row[:] = np.asarray(small, np.float64).ravel() / 255
    return made
