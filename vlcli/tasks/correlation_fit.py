"""Fits canonical correlation on pictures and their sentences; settings are chosen on pictures held out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vlcli.features import FeatureStore
from vlcli.metrics.ranking import both_ways
from vlcli.tasks.correlation import Axes, Canonical, CountedWords, Moments, Rows, solve
from vlcli.tasks.pooled import blocks_of, mean_features

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

    def texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (N, K) vectors of sentences."""
        rows = self.counted.rows(texts)[:, : self.choice.words]
        return self.canonical.vectors(rows, "words").astype(np.float32)

    def images(self, means: Rows) -> NDArray[np.float32]:
        """Return (N, K) vectors of mean features (N, D)."""
        return self.canonical.vectors(means, "image").astype(np.float32)


def fit(texts: dict[str, list[str]], store: FeatureStore, choices: Sequence[FitSetting]) -> Fitted:
    """Fit on all pictures, under the setting that ranks best among those held out.

    Args:
        texts: sentences by picture.
        store: regions of the pictures.
        choices: the settings to choose among; of equally good ones the first is taken.
    """
    counted = CountedWords.of([text for group in texts.values() for text in group], max(c.words for c in choices))
    choices = list(dict.fromkeys(replace(c, words=min(c.words, len(counted.columns))) for c in choices))
    names = list(texts)
    count = min(max(2, round(HELD * len(names))), MOST_HELD)
    drawn = set(np.random.default_rng(SEED).permutation(len(names))[:count].tolist())
    held = [name for row, name in enumerate(names) if row in drawn]
    sums = _moments(texts, [name for row, name in enumerate(names) if row not in drawn], counted, store)
    rest = _moments(texts, held, counted, store)
    chosen = choices[0]
    if len(choices) > 1:
        chosen = _best(choices, sums, {name: texts[name] for name in held}, counted, store)
    sums.merge(rest)
    words, image, across = _sides(sums, chosen.words)
    return Fitted(counted, solve(words, image, across, chosen.ridge, chosen.dims), chosen)


def _moments(texts: dict[str, list[str]], names: Sequence[str], counted: CountedWords, store: FeatureStore) -> Moments:
    sums = Moments(len(counted.columns), store.dim)
    for some, rows in blocks_of(store, names):
        counts = [len(texts[name]) for name in some]
        sums.add(counted.rows([text for name in some for text in texts[name]]), np.repeat(rows, counts, axis=0))
    return sums


def _sides(sums: Moments, words: int, image: Axes | None = None) -> tuple[Axes, Axes, Rows]:
    text = Axes.of(sums.words[:words] / sums.count, sums.covariance("words", words), "sentences")
    image = image or Axes.of(sums.image / sums.count, sums.covariance("image"), "mean features")
    return text, image, text.axes.T @ sums.covariance("across", words) @ image.axes


def _best(
    choices: Sequence[FitSetting],
    sums: Moments,
    held: dict[str, list[str]],
    counted: CountedWords,
    store: FeatureStore,
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
