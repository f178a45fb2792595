"""Pictures with their sentences, and pictures as one short vector each, for baselines without a model."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlcli.data.images import PictureError, load_image
from vlcli.data.sample import Example
from vlcli.errors import ComponentError, DataError
from vlcli.features import FeatureStore
from vlcli.tasks.correlation import Axes, Rows, unit

BLOCK = 64  # pictures whose regions are held at a time
LEAST_PICTURES = 8  # fewer are refused: nothing can be held out of them
DIMS = 256  # most principal axes that are kept
THUMBNAIL = 8  # pixels of a thumbnail's sides


class Pooled:
    """Vectors of pictures in the principal axes of the ``known`` examples' pictures.

    Axes keep their variances, whose mean is 1: with all variances 1, axes of noise count as much as others (on DAQUAR
    the multiplied network loses .011).

    Args:
        store: region features, whose mean is a picture's; None: thumbnails of the ``files`` are read.
    """

    def __init__(
        self, known: Sequence[Example], asked: Sequence[Example], store: FeatureStore | None, files: Any
    ) -> None:
        fitted = list(dict.fromkeys(name for example in known for name in example.images))
        names = list(dict.fromkeys([*fitted, *(name for example in asked for name in example.images)]))
        rows = mean_features(store, names) if store is not None else _thumbnails(names, files)
        mean = rows[: len(fitted)].mean(0)
        rows -= mean
        axes = Axes.of(mean, rows[: len(fitted)].T @ rows[: len(fitted)] / len(fitted), "pictures")
        kept = max(1, min(DIMS, rows.shape[1], len(fitted) - 1))
        size = np.sqrt(axes.spread[-kept:].mean())
        self.index = {name: row for row, name in enumerate(names)}
        self.vectors: Rows = rows @ axes.axes[:, -kept:] / size  # (N, K)
        self.most = max(len(example.images) for example in (*known, *asked))

    def rows(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return vectors (N, P * K) of each example's P pictures one after the other; zeros where it has fewer."""
        most, width = self.most, self.vectors.shape[1]
        rows = np.zeros((len(examples), most, width), np.float32)
        for row, example in zip(rows, examples, strict=True):
            row[: len(example.images)] = self.vectors[[self.index[name] for name in example.images]]
        return rows.reshape(len(examples), most * width)


def _thumbnails(names: Sequence[str], files: Any) -> Rows:
    # (N, 192) colours of thumbnails in [0, 1]; grey where a picture cannot be read
    rows = np.full((len(names), THUMBNAIL * THUMBNAIL * 3), 0.5)
    for row, name in zip(rows, names, strict=True):
        try:
            small = load_image(files[name]).resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
        except PictureError:  # whether such examples are left out or are an error was decided when they were opened
            continue
        row[:] = np.asarray(small, np.float64).ravel() / 255
    return rows


def sentences_by_picture(examples: Sequence[Example]) -> dict[str, list[str]]:
    """Return the sentences of every picture, in order of first use. Raises DataError: of fewer than 8 pictures."""
    groups: dict[str, dict[str, None]] = {}
    for example in examples:
        texts = dict.fromkeys(text for text in (example.text, *example.choices) if text)
        for name in example.images if texts else ():
            groups.setdefault(name, {}).update(texts)
    if len(groups) < LEAST_PICTURES:
        what, got = "There are too few pictures with sentences to fit a baseline on.", f"{len(groups)} pictures"
        hint = "check `take`, `limit` and `split` of the data sets in `fit`"
        raise DataError(what, where="fit", got=got, expected=f"{LEAST_PICTURES} or more", hint=hint)
    return {name: list(texts) for name, texts in groups.items()}


def refuse_known(fitted: dict[str, list[str]], tested: Sequence[str]) -> None:
    """Raise a DataError where a tested picture was fitted on."""
    both = [name for name in dict.fromkeys(tested) if name in fitted]
    if both:
        what = f"{len(both)} of the pictures that are tested are among those the task is fitted on."
        got, hint = ", ".join(both[:3]), "hold them out: take: first:N in `fit`, take: after:N in `data`"
        raise DataError(what, where="fit", got=got, expected="pictures that `data` does not have", hint=hint)


def mean_features(store: FeatureStore, names: Sequence[str]) -> NDArray[np.float64]:
    """Return the mean feature (N, D) of each picture's regions, of length 1."""
    parts = [rows for _, rows in blocks_of(store, names)]
    return np.concatenate(parts) if parts else np.zeros((0, store.dim))


def blocks_of(store: FeatureStore, names: Sequence[str]) -> Iterator[tuple[Sequence[str], NDArray[np.float64]]]:
    """Yield some pictures at a time, with the mean feature (n, D) of each, of length 1."""
    for start in range(0, len(names), BLOCK):
        some = names[start : start + BLOCK]
        batch = store.read_batch(some, ("features",))
        real = batch["mask"].astype(np.float64)
        total = np.einsum("brd,br->bd", batch["features"].astype(np.float64), real)
        yield some, unit(total / np.maximum(real.sum(1, keepdims=True), 1))


def trains_no_model(task: str, instead: str) -> ComponentError:
    """Return the error of asking ``task`` for objectives; the task ``instead`` trains a model."""
    hint, where = f"for a model, name the task {instead}", f"task {task}"
    expected = "an evaluate stage with `fit: DATA`"
    return ComponentError("This task trains no model.", where=where, expected=expected, hint=hint)
