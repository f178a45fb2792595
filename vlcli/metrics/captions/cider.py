"""CIDEr and CIDEr-D: word runs weighted by rarity among images; CIDEr-D as a reward (Vedantam et al. 2015)."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from vlcli.errors import DataError
from vlcli.files import write_text
from vlcli.metrics.captions.tokens import LONGEST, Words, grams, tokenize

SIGMA = 6.0  # width of CIDEr-D's penalty on differing lengths


@dataclass
class DocumentFrequency:
    """In how many images' references a word run occurs."""

    counts: Counter[tuple[str, ...]]
    images: int

    @classmethod
    def of(cls, references: Iterable[Sequence[Words]]) -> DocumentFrequency:
        """Count the runs in the references of every image, one image at a time."""
        counts: Counter[tuple[str, ...]] = Counter()
        images = 0
        for images, known in enumerate(references, 1):  # noqa: B007 (their number, in the end)
            counts.update({run for words in known for run in grams(words)})
        return cls(counts, images)

    def save(self, path: Path) -> None:
        """Write the counts as JSON: runs joined by spaces."""
        content = {"images": self.images, "counts": {" ".join(run): count for run, count in self.counts.items()}}
        write_text(path, json.dumps(content, ensure_ascii=False))

    @classmethod
    def load(cls, path: Path) -> DocumentFrequency:
        """Read what :meth:`save` wrote. Raises DataError: it is not there, or something else."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            counts = {tuple(run.split(" ")): int(count) for run, count in content["counts"].items()}
            return cls(Counter(counts), int(content["images"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            expected = "a JSON object with images and counts"
            raise DataError("No document frequencies can be read.", where=str(path), expected=expected) from error


# Weights by run for each length of run, their norms, and how many pairs of words there are
Vector = tuple[list[dict[tuple[str, ...], float]], list[float], int]


class Cider:
    """Scores captions against references; with ``d`` by CIDEr-D, which the COCO caption evaluation calls CIDEr.

    There a caption gains nothing by repeating a run more often than the reference, and loses by another length.
    """

    def __init__(self, frequency: DocumentFrequency, *, d: bool = True) -> None:
        self.frequency, self.d = frequency, d
        self._rarest = math.log(max(frequency.images, 1))
        self._reference = cache(self._vector)

    @classmethod
    def of(cls, references: Sequence[Sequence[Words]], *, d: bool = True) -> Cider:
        """Take the document frequency of the references that are scored against, as the COCO evaluation does."""
        return cls(DocumentFrequency.of(references), d=d)

    def score(self, candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> list[float]:
        """Return one number a caption: 10 times the mean over references and lengths of run of the cosine."""
        scores = []
        for words, known in zip(candidates, references, strict=True):
            caption = self._vector(words)
            total = sum(self._similarity(caption, self._reference(tuple(other))) for other in known)
            scores.append(10 * total / max(len(known), 1))
        return scores

    def mean(self, candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> float:
        scores = self.score(candidates, references)
        return sum(scores) / max(len(scores), 1)

    def _vector(self, words: Words) -> Vector:
        weights: list[dict[tuple[str, ...], float]] = [{} for _ in range(LONGEST)]
        for run, count in grams(words).items():
            weights[len(run) - 1][run] = count * (self._rarest - math.log(max(1, self.frequency.counts[run])))
        norms = [math.sqrt(sum(value * value for value in part.values())) for part in weights]
        return weights, norms, max(0, len(words) - 1)

    def _similarity(self, caption: Vector, reference: Vector) -> float:
        total = 0.0
        for mine, theirs, norm, far in zip(caption[0], reference[0], caption[1], reference[1], strict=True):
            shared = ((mine[run], theirs[run]) for run in mine.keys() & theirs.keys())
            total += sum((min(a, b) if self.d else a) * b for a, b in shared) / (norm * far or 1.0)
        if self.d:
            total *= math.exp(-((caption[2] - reference[2]) ** 2) / (2 * SIGMA**2))
        return total / LONGEST


# Counts as a word of captions and references, or captions learn to break off (Rennie et al.'s later code)
END = "<eos>"


class CiderReward:
    """Scores captions against their pictures' references; with ``end`` the end of a caption is a word."""

    def __init__(self, frequency: DocumentFrequency, *, end: bool = True) -> None:
        self.cider, self.end = Cider(frequency), end
        self._reference = cache(partial(self.words, ended=end))
        self.thread = ThreadPoolExecutor(1, "reward")  # for long calls of :meth:`score`, one after another

    @staticmethod
    def words(caption: str, *, ended: bool) -> list[str]:
        return [*tokenize(caption), END] if ended else tokenize(caption)

    def score(self, captions: Sequence[str], ended: Sequence[bool], references: Sequence[Sequence[str]]) -> list[float]:
        """Return CIDEr-D of every caption, in [0, 10]."""
        said = [self.words(text, ended=self.end and done) for text, done in zip(captions, ended, strict=True)]
        return self.cider.score(said, [[self._reference(text) for text in group] for group in references])
