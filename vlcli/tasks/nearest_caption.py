"""Captions without a language model: the caption of the picture that is most alike."""

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
from vlcli.tasks.pooled import blocks_of, mean_features, refuse_known, sentences_by_picture, trains_no_model


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

    def solve(self, inputs: Given) -> Result:
        assert inputs.store is not None
        texts, examples = sentences_by_picture(inputs.fit.examples), inputs.data.examples
        refuse_known(texts, [name for example in examples for name in example.images])
        groups = [example.images for example in examples]
        starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
        rows = mean_features(inputs.store, [name for group in groups for name in group])
        means = unit(np.add.reduceat(rows, starts, axis=0))  # (N, D)
        known = list(texts)
        best, cosines = nearest(inputs.store, known, means)
        predictions: list[dict[str, Any]] = [
            {
                "key": example.key,
                "image_id": coco_number(example.key),
                "prediction": texts[known[row]][0],
                "score": float(cosine),
                "nearest": known[row],
                REFERENCES: example.targets.get(REFERENCES) or [],
            }
            for example, row, cosine in zip(examples, best.tolist(), cosines.tolist(), strict=True)
        ]
        return self.measured(Result(self.score(predictions), predictions), inputs)


def nearest(
    store: FeatureStore, names: Sequence[str], queries: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the row (N,) in ``names`` of the picture nearest to each query (N, D), and its cosine (N,).

    The pictures are read some at a time, so that memory does not grow with them.
    """
    rows, best, start = np.zeros(len(queries), np.int64), np.full(len(queries), -np.inf), 0
    for some, features in blocks_of(store, names):
        cosines = queries @ features.T  # (N, n)
        nearest_here = cosines.argmax(1)
        highest = cosines[np.arange(len(queries)), nearest_here]
        rows, best = np.where(highest > best, nearest_here + start, rows), np.maximum(highest, best)
        start += len(some)
    return rows, best
