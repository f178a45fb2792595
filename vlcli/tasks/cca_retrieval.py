"""Retrieval without a neural network: canonical correlation of words and mean region features."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vlcli.data.sides import split
from vlcli.errors import ComponentError
from vlcli.features import FeatureStore
from vlcli.metrics.ranking import both_ways
from vlcli.registry import Spec
from vlcli.tasks.base import Given, Result
from vlcli.tasks.correlation import Axes, Canonical, CountedWords, Moments, Rows, solve
from vlcli.tasks.pooled import blocks_of, mean_features, refuse_known, sentences_by_picture, trains_no_model
from vlcli.tasks.rank_counts import Ranking, groups_of
from vlcli.tasks.retrieval import Retrieval

HELD, MOST_HELD = 0.15, 500  # Share and number of the fitted pictures on which is chosen
SEED = 0  # Of the draw of these pictures: the same whatever the run's, so that the row does not move with it


@dataclass(frozen=True)
class FitSetting:
    """Number of words that are counted, ridge as a share of the mean variance, number of directions."""

    words: int
    ridge: float
    dims: int


@dataclass(frozen=True)
class Fitted:
    """Words and directions under the chosen setting."""

    counted: CountedWords
    canonical: Canonical
    choice: FitSetting


def fit(texts: dict[str, list[str]], store: FeatureStore, choices: Sequence[FitSetting]) -> Fitted:
    """Fit on all pictures, given by their sentences, under the setting that ranks best among those held out.

    Of equally good choices the first is taken.
    """
    counted = CountedWords.of([text for group in texts.values() for text in group], max(c.words for c in choices))
    choices = list(dict.fromkeys(replace(c, words=min(c.words, len(counted.columns))) for c in choices))
    count = min(max(2, round(HELD * len(texts))), MOST_HELD)
    drawn = set(np.random.default_rng(SEED).permutation(len(texts))[:count].tolist())
    held = {name: group for row, (name, group) in enumerate(texts.items()) if row in drawn}
    sums = _moments({name: group for name, group in texts.items() if name not in held}, counted, store)
    chosen = choices[0] if len(choices) == 1 else _best(choices, sums, held, counted, store)
    sums.merge(_moments(held, counted, store))
    words, image, across = _sides(sums, chosen.words)
    return Fitted(counted, solve(words, image, across, chosen.ridge, chosen.dims), chosen)


def _moments(texts: dict[str, list[str]], counted: CountedWords, store: FeatureStore) -> Moments:
    sums = Moments(len(counted.columns), store.dim)
    for some, rows in blocks_of(store, list(texts)):
        counts = [len(texts[name]) for name in some]
        sums.add(counted.rows([text for name in some for text in texts[name]]), np.repeat(rows, counts, axis=0))
    return sums


def _sides(sums: Moments, words: int, image: Axes | None = None) -> tuple[Axes, Axes, Rows]:
    text = Axes.of(sums.words[:words] / sums.count, sums.covariance("words", words), "sentences")
    image = image or Axes.of(sums.image / sums.count, sums.covariance("image"), "mean features")
    return text, image, text.axes.T @ sums.covariance("across", words) @ image.axes


def _best(
    choices: Sequence[FitSetting], sums: Moments, held: dict[str, list[str]], counted: CountedWords, store: FeatureStore
) -> FitSetting:
    texts = {text: row for row, text in enumerate(dict.fromkeys(text for group in held.values() for text in group))}
    relevant = np.zeros((len(texts), len(held)), bool)
    for column, group in enumerate(held.values()):
        relevant[[texts[text] for text in group], column] = True
    rows, means = counted.rows(list(texts)), mean_features(store, list(held))
    scores: dict[FitSetting, float] = {}
    image: Axes | None = None
    for words, same_words in itertools.groupby(choices, lambda choice: choice.words):
        text, image, across = _sides(sums, words, image)
        for ridge, same_ridge in itertools.groupby(same_words, lambda choice: choice.ridge):
            alike = list(same_ridge)
            canonical = solve(text, image, across, ridge, max(choice.dims for choice in alike))
            for choice in alike:
                queries = canonical.vectors(rows[:, :words], "words", choice.dims)
                images = canonical.vectors(means, "image", choice.dims)
                scores[choice] = both_ways(queries @ images.T, relevant)["r_mean"]
    return max(scores, key=lambda choice: scores[choice])


BLOCK = 4096  # Sentences whose words are counted at a time


class CCARetrieval(Retrieval):
    """Retrieval by regularised canonical correlation of words (tf-idf) and mean region features, without a model.

    An evaluate stage names in ``fit`` the pictures to fit on, in closed form. Of several values, those are taken that
    rank best (mean recall) among 15 % of these pictures (500 at most) after fitting on the others.

    Args:
        dims: number of directions, or several to choose among.
        ridge: added to the variances as a share of their mean, or several to choose among.
        words: number of the most frequent words, or several to choose among.
        memory: MiB of scores that are held at a time.
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
        choices: list[Any] = [value if isinstance(value, tuple | list) else (value,) for value in (words, ridge, dims)]
        if not all(each and min(each) > 0 for each in choices):
            what, got = "There is nothing to choose among.", f"words {words}, ridge {ridge}, dims {dims}"
            expected = "one number above 0, or several"
            raise ComponentError(what, where="task cca-retrieval", got=got, expected=expected)
        self.choices = [FitSetting(*each) for each in itertools.product(*choices)]

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
        blocks = (fitted.counted.rows(queries[start : start + BLOCK]) for start in range(0, len(queries), BLOCK))
        text = [fitted.canonical.vectors(rows[:, : chosen.words], "words") for rows in blocks]
        image = [fitted.canonical.vectors(rows, "image") for _, rows in blocks_of(inputs.store, sides.image_keys)]
        vectors = np.concatenate(text, dtype=np.float32), np.concatenate(image, dtype=np.float32)
        ranking = Ranking(sides, vectors, self.memory)
        result = self._result(ranking, groups_of(sides, self.folds), None)
        result.metrics |= {f"chosen/{name}": float(value) for name, value in vars(chosen).items()}
        return result
