"""Retrieval without a neural network: canonical correlation of words and mean region features."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from vlcli.data.sides import split
from vlcli.errors import ComponentError
from vlcli.registry import Spec
from vlcli.tasks.base import Given, Result
from vlcli.tasks.correlation_fit import FitSetting, fit
from vlcli.tasks.pooled import blocks_of, refuse_known, sentences_by_picture, trains_no_model
from vlcli.tasks.rank_counts import Ranking, groups_of
from vlcli.tasks.retrieval import Retrieval

BLOCK = 4096  # Sentences whose words are counted at a time


class CCARetrieval(Retrieval):
    """Retrieval by regularised canonical correlation of words (tf-idf) and mean region features: a row beside models.

    It needs no model: an evaluate stage names in ``fit`` the pictures it is fitted on, in closed form. Where several
    values are given, those are taken that rank best (mean recall) among 15 % of the pictures of ``fit`` (500 at most)
    after fitting on the others; then all are fitted on.

    Args:
        dims: how many directions, or several to choose among.
        ridge: added to the variances as a share of their mean, or several to choose among.
        words: how many of the most frequent words, or several to choose among.
        memory: MiB of scores that are held at a time.
        folds: rank within so many parts of the pictures too, as for ``retrieval``.
        ks: how far down the list recall looks.
    """

    paper = "Hotelling 1936; for pictures and sentences Hodosh et al. 2013, Gong et al. 2014"
    fitted = True

    def __init__(
        self,
        *,
        dims: int | tuple[int, ...] = (32, 64, 128, 256),
        ridge: float | tuple[float, ...] = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0),
        words: int | tuple[int, ...] = (1000, 2000, 3000),
        memory: int = 1024,
        folds: int | None = None,
        ks: tuple[int, ...] = (1, 5, 10),
    ) -> None:
        super().__init__(objective=None, first="cca", memory=memory, folds=folds, ks=ks)
        choices: dict[str, Any] = {"words": words, "ridge": ridge, "dims": dims}
        for name, value in choices.items():
            choices[name] = tuple(value) if isinstance(value, tuple | list) else (value,)
            if not choices[name] or not all(0 < number < 1e6 for number in choices[name]):
                raise ComponentError(
                    "There is nothing to choose among.",
                    where=f"task cca-retrieval: {name}",
                    got=str(list(choices[name])),
                    expected="one number above 0, or several",
                )
        self.choices = [FitSetting(*each) for each in itertools.product(*choices.values())]

    def objectives(self) -> list[Spec]:
        raise trains_no_model("cca-retrieval", "retrieval")

    def solve(self, inputs: Given) -> Result:
        assert inputs.store is not None
        texts, sides = sentences_by_picture(inputs.fit.examples), split(inputs.data)
        refuse_known(texts, sides.image_keys)
        fitted = fit(texts, inputs.store, self.choices)
        chosen = fitted.choice
        inputs.progress.info(f"canonical correlation: {chosen.words} words, ridge {chosen.ridge:g}, {chosen.dims} dims")
        queries = [str(example.text) for example in sides.texts.examples]
        text = [fitted.texts(queries[start : start + BLOCK]) for start in range(0, len(queries), BLOCK)]
        image = [fitted.images(rows) for _, rows in blocks_of(inputs.store, sides.image_keys)]
        ranking = Ranking(sides, (np.concatenate(text), np.concatenate(image)), self.memory)
        result = self._result(ranking, groups_of(sides, self.folds), None)
        result.metrics |= {f"chosen/{name}": float(value) for name, value in vars(chosen).items()}
        return result
