"""How often vlcli's 95 % intervals hold the truth: python benchmarks/coverage.py [--repetitions 1500] [--answers 5].

Answers are right by a rate that differs from picture to picture (beta-binomial: answers about one picture have the
correlation rho); two models that are compared share part of what makes a picture and an answer easy. One line a cell:
share of intervals that hold the true score (or difference) and mean width; beside it the interval of independent
answers (Wilson's, or Student's of the differences), which claims too much.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from vlcli.metrics.clustered import Clusters, difference_interval, score_interval
from vlcli.metrics.interval import Interval

PICTURES = (30, 100, 300, 3000)
SCORES = (0.5, 0.9, 0.98)
CORRELATIONS = (0.1, 0.3)
AGREEMENT = 0.7
"""Share of what makes an answer easy that two compared models have in common."""
Answers = NDArray[np.float64]


@dataclass(frozen=True)
class Coverage:
    """Of one cell: share of intervals that hold the truth and their mean width, clustered and independent."""

    clustered: tuple[float, float]
    independent: tuple[float, float]


def scores(rng: np.random.Generator, pictures: int, each: int, score: float, rho: float) -> Answers:
    """(pictures, each) right answers (1) of one model."""
    rate = rng.beta(score * (1 / rho - 1), (1 - score) * (1 / rho - 1), pictures)
    return (rng.random((pictures, each)) < rate[:, None]).astype(np.float64)


def differences(
    rng: np.random.Generator, pictures: int, each: int, both: tuple[float, float], rho: float, agreement: float
) -> Answers:
    """(pictures, each) differences (-1, 0, 1) of two models on the same answers."""
    shared, own = np.sqrt(agreement), np.sqrt(1 - agreement)
    shapes = ((pictures, 1), (pictures, each))
    common = [rng.standard_normal(shape) for shape in shapes]
    right = []
    for score in both:
        picture, answer = (
            shared * part + own * rng.standard_normal(shape) for part, shape in zip(common, shapes, strict=True)
        )
        right.append(np.sqrt(rho) * picture + np.sqrt(1 - rho) * answer < norm.ppf(score))
    return right[1].astype(np.float64) - right[0]


def cover(samples: Iterator[Answers], truth: float, *, paired: bool) -> Coverage:
    """Coverage of both intervals over samples of (pictures, each) answers."""
    held: list[list[tuple[bool, float]]] = [[], []]
    names: list[str] = []
    clusters: Clusters = {}
    for sample in samples:
        if not names:
            names = [str(number) for number in range(sample.size)]
            clusters = {name: f"picture {int(name) // sample.shape[1]}" for name in names}
        values = dict(zip(names, sample.ravel().tolist(), strict=True))
        for found, known in zip(held, (clusters, None), strict=True):
            sure = difference_interval([values], known) if paired else score_interval(values, known)
            found.append((_holds(sure, truth), 2 * (sure.half or 0.0)))
    shares = [tuple(np.mean(found, axis=0).tolist()) for found in held]
    return Coverage(*shares)


def _holds(sure: Interval, truth: float) -> bool:
    return sure.low is not None and sure.high is not None and sure.low - 1e-12 <= truth <= sure.high + 1e-12


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line a cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=1500)
    parser.add_argument("--answers", type=int, default=5, help="answers about each picture")
    parser.add_argument("--pictures", type=int, nargs="+", default=PICTURES)
    given = parser.parse_args(arguments)
    rng = np.random.default_rng(7)
    print("what        pictures  truth  rho   clustered: held, width   independent: held, width")
    for pictures in given.pictures:
        for score in SCORES:
            for rho in CORRELATIONS:
                size, times = (pictures, given.answers), range(given.repetitions)
                found = cover((scores(rng, *size, score, rho) for _ in times), score, paired=False)
                _tell("score", pictures, score, rho, found)
                pair, gain = (score, score + 0.02 if score < 0.98 else score), 0.02 if score < 0.98 else 0.0
                made = (differences(rng, *size, pair, rho, AGREEMENT) for _ in times)
                _tell("difference", pictures, gain, rho, cover(made, gain, paired=True))


def _tell(what: str, pictures: int, truth: float, rho: float, found: Coverage) -> None:
    sides = "             ".join(f"{held:.3f}  {width:.3f}" for held, width in (found.clustered, found.independent))
    print(f"{what:<10} {pictures:>9}  {truth:>5}  {rho:<4}  {sides}", flush=True)


if __name__ == "__main__":
    main()
