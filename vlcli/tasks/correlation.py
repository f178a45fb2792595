"""Regularised canonical correlation of words and pictures, from sums that need no more memory for more data.

Words are counted, weighted by how rare they are (tf-idf) and brought to length 1; so is the mean feature of a picture.
Canonical correlation (Hotelling 1936) finds directions of both in which pairs agree most. Its sums of products take
memory by the square of the number of words and of the width of features, whatever the number of pairs.
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


@dataclass(frozen=True)
class CountedWords:
    """Which words are counted, the most frequent first.

    Attributes:
        columns: place of each word in a row.
        rarity: (W,) the inverse document frequency: ln((1 + N) / (1 + n)) + 1 for a word of n of N sentences.
    """

    columns: dict[str, int]
    rarity: Rows

    @classmethod
    def of(cls, texts: Sequence[str], most: int) -> Self:
        """The ``most`` frequent words; those of one sentence alone are left out where others are there.

        Raises:
            DataError: the sentences hold no word.
        """
        found = Counter(word for text in texts for word in dict.fromkeys(tokenize(text)))
        if not found:
            raise DataError("The sentences hold no word.", got=f"{len(texts)} sentences")
        least = min(2, max(found.values()))
        kept = sorted((word for word in found if found[word] >= least), key=lambda word: (-found[word], word))[:most]
        seen = np.array([found[word] for word in kept], np.float64)
        return cls({word: place for place, word in enumerate(kept)}, np.log((1 + len(texts)) / (1 + seen)) + 1)

    def rows(self, texts: Sequence[str]) -> Rows:
        """(N, W) of length 1; a sentence without any of the words is zero."""
        made = np.zeros((len(texts), len(self.columns)))
        for row, text in zip(made, texts, strict=True):
            for word, count in Counter(tokenize(text)).items():
                if word in self.columns:
                    row[self.columns[word]] = count
        return unit(made * self.rarity)


@dataclass
class Moments:
    """Sums over pairs of a row of words (W,) and a row of a picture (D,), each with the other's products.

    Attributes:
        count: pairs.
        words: (W,).
        image: (D,).
        both_words: (W, W).
        both_image: (D, D).
        across: (W, D).
    """

    count: int
    words: Rows
    image: Rows
    both_words: Rows
    both_image: Rows
    across: Rows

    @classmethod
    def none(cls, words: int, image: int) -> Self:
        """Of no pair, for rows of these widths."""
        shapes = ((words,), (image,), (words, words), (image, image), (words, image))
        return cls(0, *(np.zeros(shape) for shape in shapes))

    def add(self, words: Rows, image: Rows) -> None:
        """Count pairs in: (n, W) and (n, D)."""
        self.count += len(words)
        self.words += words.sum(0)
        self.image += image.sum(0)
        self.both_words += words.T @ words
        self.both_image += image.T @ image
        self.across += words.T @ image

    def merge(self, other: Moments) -> None:
        """Count in the pairs of another."""
        self.count += other.count
        for name in ("words", "image", "both_words", "both_image", "across"):
            getattr(self, name).__iadd__(getattr(other, name))

    def covariance(self, side: str, words: int | None = None) -> Rows:
        """Of the first ``words`` words (W, W), the picture (D, D), or ``across`` (W, D)."""
        sums = {
            "words": (self.both_words[:words, :words], self.words[:words], self.words[:words]),
            "image": (self.both_image, self.image, self.image),
            "across": (self.across[:words], self.words[:words], self.image),
        }
        products, first, second = sums[side]
        return products / self.count - np.outer(first / self.count, second / self.count)


@dataclass(frozen=True)
class Axes:
    """The principal axes of one side: with them, whitening under any ridge is a product by a diagonal.

    Attributes:
        mean: (W,).
        spread: (W,) variances, none below 0.
        axes: (W, W) as columns.
    """

    mean: Rows
    spread: Rows
    axes: Rows

    @classmethod
    def of(cls, mean: Rows, covariance: Rows, what: str) -> Self:
        """Of a covariance.

        Raises:
            DataError: nothing varies.
        """
        spread, axes = np.linalg.eigh(covariance)
        if not spread[-1] > 1e-12:
            raise DataError(f"All {what} that the task is fitted on are the same.", expected="some that differ")
        return cls(mean, np.maximum(spread, 0), axes)

    def scale(self, ridge: float) -> Rows:
        """(W,) what each axis is multiplied by; ``ridge`` is a share of the mean variance."""
        made: Rows = 1 / np.sqrt(self.spread + ridge * self.spread.mean())
        return made


@dataclass(frozen=True)
class Canonical:
    """Directions in which words and pictures agree.

    Attributes:
        correlations: (K,) regularised, falling.
        words: mean (W,) and directions (W, K).
        image: mean (D,) and directions (D, K).
    """

    correlations: Rows
    words: tuple[Rows, Rows]
    image: tuple[Rows, Rows]

    def vectors(self, rows: Rows, side: str, dims: int | None = None) -> Rows:
        """(N, K) of rows of one side, length 1: their first ``dims`` coordinates times the correlations."""
        mean, directions = self.words if side == "words" else self.image
        return unit((rows - mean) @ (directions[:, :dims] * self.correlations[:dims]))


def solve(words: Axes, image: Axes, across: Rows, ridge: float, dims: int) -> Canonical:
    """The first ``dims`` directions, fewer where the data have no more.

    Args:
        words: axes of the words (W).
        image: axes of the pictures (D).
        across: (W, D) covariance of the two in these axes.
        ridge: what is added to the variances, as a share of their mean.
        dims: how many.
    """
    scale = words.scale(ridge), image.scale(ridge)
    whitened = scale[0][:, None] * across * scale[1]
    turned = whitened if len(whitened) <= whitened.shape[1] else whitened.T
    squares, near = np.linalg.eigh(turned @ turned.T)
    strength = np.sqrt(np.maximum(squares[::-1][:dims], 0))
    kept = strength > LEAST * max(float(strength[0]), 1e-300)
    strength, near = strength[kept], near[:, ::-1][:, :dims][:, kept]
    far = turned.T @ near / strength
    sides = (near, far) if turned is whitened else (far, near)
    found = [
        (one.mean, one.axes @ (by[:, None] * side)) for one, by, side in zip((words, image), scale, sides, strict=True)
    ]
    return Canonical(strength, found[0], found[1])


def unit(rows: Rows) -> Rows:
    """Rows (N, D) of length 1; what is zero stays so."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1)
