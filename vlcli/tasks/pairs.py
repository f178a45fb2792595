"""Pictures with their sentences, and what a picture is without a model: the mean of its regions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from vlcli.data.sample import Example
from vlcli.errors import ComponentError, DataError
from vlcli.features import FeatureStore
from vlcli.tasks.correlation import unit

BLOCK = 64  # Pictures whose regions are held at a time
LEAST_PICTURES = 8  # Fewer are refused: nothing can be held out of them


def sentences_by_picture(examples: Sequence[Example]) -> dict[str, list[str]]:
    """Every sentence of every picture, in order of first use.

    Raises:
        DataError: there are hardly any pictures with sentences.
    """
    found: dict[str, dict[str, None]] = {}
    for example in examples:
        texts = [text for text in (example.text, *example.choices) if text]
        for name in example.images if texts else ():
            found.setdefault(name, {}).update(dict.fromkeys(texts))
    if len(found) < LEAST_PICTURES:
        raise DataError(
            "There are too few pictures with sentences to fit a baseline on.",
            where="fit",
            got=f"{len(found)} pictures",
            expected=f"{LEAST_PICTURES} or more",
            hint="check `take`, `limit` and `split` of the data sets in `fit`",
        )
    return {name: list(texts) for name, texts in found.items()}


def refuse_known(fitted: dict[str, list[str]], tested: Sequence[str]) -> None:
    """Refuse to test on pictures that were fitted on.

    Raises:
        DataError: some are.
    """
    both = [name for name in dict.fromkeys(tested) if name in fitted]
    if both:
        raise DataError(
            f"{len(both)} of the pictures that are tested are among those the task is fitted on.",
            where="fit",
            got=", ".join(both[:3]),
            expected="pictures that `data` does not have",
            hint="hold them out: take: first:N in `fit`, take: after:N in `data`",
        )


def mean_features(store: FeatureStore, names: Sequence[str]) -> NDArray[np.float64]:
    """(N, D) the mean feature of each picture's regions, length 1."""
    parts = [rows for _, rows in blocks_of(store, names)]
    return np.concatenate(parts) if parts else np.zeros((0, store.dim))


def blocks_of(store: FeatureStore, names: Sequence[str]) -> Iterator[tuple[Sequence[str], NDArray[np.float64]]]:
    """Some pictures at a time, with the mean feature (n, D) of each, length 1."""
    for start in range(0, len(names), BLOCK):
        some = names[start : start + BLOCK]
        batch = store.read_batch(some, ("features",))
        real = batch["mask"].astype(np.float64)
        total = np.einsum("brd,br->bd", batch["features"].astype(np.float64), real)
        yield some, unit(total / np.maximum(real.sum(1, keepdims=True), 1))


def trains_no_model(task: str, instead: str) -> ComponentError:
    """What a task that is fitted without a model says when it is asked for objectives.

    Args:
        task: its name.
        instead: the task that trains a model for the same.
    """
    return ComponentError(
        "This task trains no model.",
        where=f"task {task}",
        expected="an evaluate stage with `fit: DATA`",
        hint=f"for a model, name the task {instead}",
    )
