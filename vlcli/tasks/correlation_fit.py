"""Canonical correlation fitted on pictures and their sentences; what is left open is chosen among pictures held out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vlcli.features import FeatureStore
from vlcli.metrics.ranking import both_ways
from vlcli.tasks.correlation import Axes, Canonical, CountedWords, Moments, Rows, solve
from vlcli.tasks.pairs import blocks_of, mean_features

HELD, MOST_HELD = 0.15, 500  # Share and number of the fitted pictures on which is chosen
SEED = 0  # Of the draw of these pictures: the same whatever the run's, so that the row does not move with it
Texts = dict[str, list[str]]  # Sentences by picture


@dataclass(frozen=True)
class FitSetting:
    """One setting.

    Attributes:
        words: how many are counted.
        ridge: share of the mean variance.
        dims: how many directions.
    """

    words: int
    ridge: float
    dims: int

    @classmethod
    def each(cls, words: Sequence[int], ridges: Sequence[float], dims: Sequence[int]) -> list[Self]:
        """All combinations."""
        return [cls(*one) for one in itertools.product(words, ridges, dims)]

    def within(self, words: int) -> Self:
        """The same of no more words than there are."""
        return replace(self, words=min(self.words, words))


@dataclass(frozen=True)
class Fitted:
    """What was found.

    Attributes:
        counted: the words.
        canonical: the directions.
        choice: the setting.
    """

    counted: CountedWords
    canonical: Canonical
    choice: FitSetting

    def texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(N, K) vectors of sentences."""
        rows = self.counted.rows(texts)[:, : self.choice.words]
        return self.canonical.vectors(rows, "words").astype(np.float32)

    def images(self, means: Rows) -> NDArray[np.float32]:
        """(N, K) vectors of mean features (N, D)."""
        return self.canonical.vectors(means, "image").astype(np.float32)


def fit(texts: Texts, store: FeatureStore, choices: Sequence[FitSetting]) -> Fitted:
    """Directions of all these pictures, under the setting that ranks best among those held out.

    Args:
        texts: sentences by picture.
        store: regions of the pictures.
        choices: the settings to choose among; of equally good ones the first is taken.

    Raises:
        DataError: nothing varies, there are no words, or a picture is not in the store.
    """
    every = [text for group in texts.values() for text in group]
    counted = CountedWords.of(every, max(choice.words for choice in choices))
    choices = list(dict.fromkeys(choice.within(len(counted.columns)) for choice in choices))
    kept, held = _apart(list(texts))
    sums, rest = (_moments(texts, names, counted, store) for names in (kept, held))
    chosen = choices[0]
    if len(choices) > 1:
        chosen = _best(choices, sums, {name: texts[name] for name in held}, counted, store)
    sums.merge(rest)
    words, image, across = _sides(sums, chosen.words)
    return Fitted(counted, solve(words, image, across, chosen.ridge, chosen.dims), chosen)


def _apart(names: list[str]) -> tuple[list[str], list[str]]:
    count = min(max(2, round(HELD * len(names))), MOST_HELD)
    chosen = set(np.random.default_rng(SEED).permutation(len(names))[:count].tolist())
    kept = [name for place, name in enumerate(names) if place not in chosen]
    return kept, [name for place, name in enumerate(names) if place in chosen]


def _moments(texts: Texts, names: Sequence[str], counted: CountedWords, store: FeatureStore) -> Moments:
    sums = Moments.none(len(counted.columns), store.dim)
    for some, rows in blocks_of(store, names):
        counts = [len(texts[name]) for name in some]
        sums.add(counted.rows([text for name in some for text in texts[name]]), np.repeat(rows, counts, axis=0))
    return sums


def _sides(sums: Moments, words: int, image: Axes | None = None) -> tuple[Axes, Axes, Rows]:
    # The axes of the first ``words`` words and of the pictures (as given, if they are), and how they vary together
    text = Axes.of(sums.words[:words] / sums.count, sums.covariance("words", words), "sentences")
    image = image or Axes.of(sums.image / sums.count, sums.covariance("image"), "mean features")
    return text, image, text.axes.T @ sums.covariance("across", words) @ image.axes


def _best(
    choices: Sequence[FitSetting], sums: Moments, held: Texts, counted: CountedWords, store: FeatureStore
) -> FitSetting:
    texts = {text: row for row, text in enumerate(dict.fromkeys(text for group in held.values() for text in group))}
    relevant = np.zeros((len(texts), len(held)), bool)
    for column, group in enumerate(held.values()):
        relevant[[texts[text] for text in group], column] = True
    rows, means = counted.rows(list(texts)), mean_features(store, list(held))
    found: dict[FitSetting, float] = {}
    image: Axes | None = None
    for words, some in itertools.groupby(choices, lambda choice: choice.words):
        text, image, across = _sides(sums, words, image)
        for ridge, same in itertools.groupby(some, lambda choice: choice.ridge):
            alike = list(same)
            canonical = solve(text, image, across, ridge, max(choice.dims for choice in alike))
            for choice in alike:
                asked = canonical.vectors(rows[:, :words], "words", choice.dims)
                seen = canonical.vectors(means, "image", choice.dims)
                found[choice] = both_ways(asked @ seen.T, relevant)["r_mean"]
    return max(found, key=lambda choice: found[choice])
