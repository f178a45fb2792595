"""Captions without a language model: what people said of the picture that is most alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlcli.data.references import REFERENCES
from vlcli.features import FeatureStore
from vlcli.metrics.captions.measure import NAMES, Metric
from vlcli.registry import DatasetSpec, Spec
from vlcli.tasks.base import Given, Result
from vlcli.tasks.captioning import Captioning, coco_number
from vlcli.tasks.correlation import unit
from vlcli.tasks.pairs import blocks_of, mean_features, refuse_known, sentences_by_picture, trains_no_model


class NearestCaption(Captioning):
    """The first caption of the picture whose mean region feature is nearest: a row beside models, scored as theirs.

    It needs no model: an evaluate stage names in ``fit`` the pictures whose captions are taken. Nearest is the highest
    cosine; of equally near pictures, the first in the data's order.

    Args:
        metrics: which are computed.
        baseline: also score the best single caption.
        facts: a data set of annotated boxes, against which what captions claim is checked (``right/look``).
        algorithm: the name in the COCO server's file names.
    """

    paper = "Ordonez et al. 2011; Devlin et al. 2015, Exploring Nearest Neighbor Approaches for Image Captioning"
    requires = frozenset()
    fitted = True

    def __init__(
        self,
        *,
        metrics: tuple[Metric, ...] = NAMES,
        baseline: bool = True,
        facts: DatasetSpec | None = None,
        algorithm: str = "nearest",
    ) -> None:
        super().__init__(metrics=metrics, baseline=baseline, facts=facts, algorithm=algorithm)

    def objectives(self) -> list[Spec]:
        raise trains_no_model("nearest-caption", "captioning")

    def solve(self, given: Given) -> Result:
        assert given.store is not None
        texts = sentences_by_picture(given.fit.examples)
        examples = given.data.examples
        refuse_known(texts, [name for example in examples for name in example.images])
        known = list(texts)
        near, score = nearest(given.store, known, _means(given.store, [example.images for example in examples]))
        rows: list[dict[str, Any]] = [
            {
                "key": example.key,
                "image_id": coco_number(example.key),
                "prediction": texts[known[place]][0],
                "score": float(value),
                "nearest": known[place],
                REFERENCES: example.targets.get(REFERENCES) or [],
            }
            for example, place, value in zip(examples, near.tolist(), score.tolist(), strict=True)
        ]
        return self.measured(Result(self.score(rows), rows), given)


def _means(store: FeatureStore, groups: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    # (N, D) the mean feature of each group of pictures, length 1
    rows = mean_features(store, [name for group in groups for name in group])
    starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
    return unit(np.add.reduceat(rows, starts, axis=0))


def nearest(
    store: FeatureStore, names: Sequence[str], asked: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The place (N,) in ``names`` of the picture nearest to each of ``asked`` (N, D), and its cosine (N,).

    The pictures are read some at a time, so that memory does not grow with them.
    """
    place, best, start = np.zeros(len(asked), np.int64), np.full(len(asked), -np.inf), 0
    for some, rows in blocks_of(store, names):
        cosines = asked @ rows.T
        here = cosines.argmax(1)
        found = cosines[np.arange(len(asked)), here]
        place, best = np.where(found > best, here + start, place), np.maximum(found, best)
        start += len(some)
    return place, best
