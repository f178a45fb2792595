"""Regularised canonical correlation (Hotelling 1936) of words and pictures, in memory that does not grow with the data.

Rows are tf-idf weights of words and mean features of pictures, both of length 1. Sums of products take memory by the
square of the number of words and of the width of features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from vlcli.errors import DataError
from vlcli.metrics.captions.tokens import tokenize

Rows = NDArray[np.float64]
LEAST = 1e-6  # Correlations below this share of the greatest are rounding, and their directions are left out


def unit(rows: Rows) -> Rows:
    """Return rows (N, D) divided by their lengths; rows of zeros stay."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)


@dataclass(frozen=True)
class CountedWords:
    """The words that are counted, the most frequent first."""

    columns: dict[str, int]  # column of each word
    rarity: Rows  # (W,) the inverse document frequency: ln((1 + N) / (1 + n)) + 1 for a word of n of N sentences

    @classmethod
    def of(cls, texts: Sequence[str], most: int) -> Self:
        """Count the ``most`` frequent words, of two sentences or more if any. Raises DataError: there is no word."""
        counts = Counter(word for text in texts for word in dict.fromkeys(tokenize(text)))
        if not counts:
            raise DataError("The sentences hold no word.", got=f"{len(texts)} sentences")
        least = min(2, max(counts.values()))
        kept = sorted((word for word in counts if counts[word] >= least), key=lambda word: (-counts[word], word))[:most]
        seen = np.array([counts[word] for word in kept], np.float64)
        return cls({word: column for column, word in enumerate(kept)}, np.log((1 + len(texts)) / (1 + seen)) + 1)

    def rows(self, texts: Sequence[str]) -> Rows:
        """Return vectors (N, W) of length 1; a sentence without any of the words is zero."""
        rows = np.zeros((len(texts), len(self.columns)))
        for row, text in zip(rows, texts, strict=True):
            for word, count in Counter(tokenize(text)).items():
                if word in self.columns:
                    row[self.columns[word]] = count
        return unit(rows * self.rarity)


class Moments:
    """Sums over pairs of a row of words (W,) and a row of a picture (D,), and of their products."""

    def __init__(self, words: int, image: int) -> None:
        self.count = 0
        self.words, self.image = np.zeros(words), np.zeros(image)
        self.both_words, self.both_image = np.zeros((words, words)), np.zeros((image, image))
        self.across = np.zeros((words, image))

    def add(self, words: Rows, image: Rows) -> None:
        """Count in pairs: (n, W) and (n, D)."""
        self.count += len(words)
        self.words += words.sum(0)
        self.image += image.sum(0)
        self.both_words += words.T @ words
        self.both_image += image.T @ image
        self.across += words.T @ image

    def merge(self, other: Moments) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def covariance(self, side: str, words: int | None = None) -> Rows:
        """Return the covariance of the first ``words`` words (W, W), of the ``image`` (D, D), or ``across`` (W, D)."""
        sums = {"words": self.both_words[:words, :words], "image": self.both_image, "across": self.across[:words]}
        first = self.image if side == "image" else self.words[:words]
        second = self.words[:words] if side == "words" else self.image
        return sums[side] / self.count - np.outer(first / self.count, second / self.count)


@dataclass(frozen=True)
class Axes:
    """Principal axes of one side: with them, whitening under any ridge is a product by a diagonal."""

    mean: Rows  # (W,)
    spread: Rows  # (W,) variances, none below 0
    axes: Rows  # (W, W) as columns

    @classmethod
    def of(cls, mean: Rows, covariance: Rows, what: str) -> Self:
        """Return the axes of a covariance. Raises DataError: nothing varies."""
        spread, axes = np.linalg.eigh(covariance)
        if not spread[-1] > 1e-12:
            raise DataError(f"All {what} that the task is fitted on are the same.", expected="some that differ")
        return cls(mean, np.maximum(spread, 0), axes)


@dataclass(frozen=True)
class Canonical:
    """Directions in which words and pictures agree."""

    correlations: Rows  # (K,) regularised, falling
    words: tuple[Rows, Rows]  # mean (W,) and directions (W, K)
    image: tuple[Rows, Rows]  # mean (D,) and directions (D, K)

    def vectors(self, rows: Rows, side: str, dims: int | None = None) -> Rows:
        """Return vectors (N, K) of length 1 of one side's rows: ``dims`` coordinates times the correlations."""
        mean, directions = self.words if side == "words" else self.image
        return unit((rows - mean) @ (directions[:, :dims] * self.correlations[:dims]))


def solve(words: Axes, image: Axes, across: Rows, ridge: float, dims: int) -> Canonical:
    """Return the first ``dims`` directions, fewer where the data have no more.

    ``across`` (W, D) is the covariance in the two sides' axes; ``ridge``, a share of the mean variance, is added.
    """
    scale = [1 / np.sqrt(axes.spread + ridge * axes.spread.mean()) for axes in (words, image)]
    whitened = scale[0][:, None] * across * scale[1]  # (W, D)
    turned = whitened if len(whitened) <= whitened.shape[1] else whitened.T
    squares, near = np.linalg.eigh(turned @ turned.T)
    strength = np.sqrt(np.maximum(squares[::-1][:dims], 0))
    kept = strength > LEAST * max(float(strength[0]), 1e-300)
    strength, near = strength[kept], near[:, ::-1][:, :dims][:, kept]
    far = turned.T @ near / strength
    sides = (near, far) if turned is whitened else (far, near)
    parts = zip((words, image), scale, sides, strict=True)
    return Canonical(strength, *((axes.mean, axes.axes @ (by[:, None] * side)) for axes, by, side in parts))
