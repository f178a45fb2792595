"""How often vlcli's 95 % intervals hold the truth: python benchmarks/coverage.py [--repetitions 1500] [--answers 5].

Answers are right by a rate that differs from picture to picture (beta-binomial: answers about one picture have the
correlation rho); two models that are compared share part of what makes a picture and an answer easy. One line a cell:
the share of intervals that hold the true score (or difference); beside it the interval of independent answers
(Wilson's, or Student's of the differences), which claims too much. Then how often tests err: differences and Holm's
correction where no model is better, equivalence at the edge of what counts as equal, and the seeds' intervals.
All numbers come from the functions that report, tables and verdicts call.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from vlcli.metrics.clustered import Groups, difference_ends, score_ends
from vlcli.metrics.interval import interval
from vlcli.tables.statistics import ALPHA, adjusted

PICTURES = (30, 100, 300, 1000, 3000)
SCORES = (0.02, 0.1, 0.5, 0.9, 0.98)
CORRELATIONS = (0.0, 0.3, 0.7)
AGREEMENTS = (0.7, 0.95)
"""Share of what makes an answer easy that two compared models have in common."""
GAIN = 0.02
SEEDS = (3, 5, 10)
TESTS = 10
"""Contrasts of a table of which Holm's correction is made."""
MOST_COMPARED = 300
"""Pictures up to which differences are drawn: beyond them the intervals are those of the normal distribution."""
AT_ONCE = 4_000_000
"""Answers that are drawn together."""
Answers = NDArray[np.float64]
Ends = tuple[Answers, Answers]


def sizes_of(pictures: int, answers: int) -> NDArray[np.int64]:
    """(pictures,) answers about each; 0 answers: from 1 to 30 or so, 6 on average, the same in every repetition."""
    if answers:
        return np.full(pictures, answers)
    return 1 + np.random.default_rng(pictures).negative_binomial(1, 1 / 6, pictures)


def scores(rng: np.random.Generator, times: int, sizes: NDArray[np.int64], score: float, rho: float) -> Answers:
    """(times, answers) right answers (1) of one model."""
    rate: Answers = np.full((times, len(sizes)), score)
    if rho:
        rate = rng.beta(score * (1 / rho - 1), (1 - score) * (1 / rho - 1), rate.shape)
    right = rng.random((times, int(sizes.sum()))) < np.repeat(rate, sizes, axis=1)
    return right.astype(np.float64)


def differences(
    rng: np.random.Generator,
    times: int,
    sizes: NDArray[np.int64],
    both: Sequence[float],
    rho: float,
    agreement: float,
) -> Answers:
    """(models - 1, times, answers) differences (-1, 0, 1) of models to the first one on the same answers."""
    shared, own = np.sqrt(agreement), np.sqrt(1 - agreement)
    shapes = ((times, len(sizes)), (times, int(sizes.sum())))
    common = [rng.standard_normal(shape, np.float32) for shape in shapes]
    right = []
    for score in both:
        picture, answer = (
            shared * part + own * rng.standard_normal(shape, np.float32)
            for part, shape in zip(common, shapes, strict=True)
        )
        ease = np.sqrt(rho) * np.repeat(picture, sizes, axis=1) + np.sqrt(1 - rho) * answer
        right.append((ease < norm.ppf(score)).astype(np.float64))
    return np.stack(right[1:]) - right[0]


def in_parts(repetitions: int, answers: int) -> Iterator[int]:
    """Numbers of repetitions that fit into memory together."""
    part = max(1, AT_ONCE // answers)
    yield from (min(part, repetitions - start) for start in range(0, repetitions, part))


def held(ends: Ends, truth: float) -> NDArray[np.bool_]:
    """Whether intervals hold the truth."""
    return np.asarray((ends[0] - 1e-12 <= truth) & (truth <= ends[1] + 1e-12))


def cover_score(
    rng: np.random.Generator, repetitions: int, sizes: NDArray[np.int64], score: float, rho: float
) -> tuple[float, float]:
    """Share of intervals of a score that hold it: clustered, and of independent answers."""
    total = int(sizes.sum())
    known, alone = groups(sizes), Groups.of(np.arange(total))
    shares = []
    for times in in_parts(repetitions, total):
        sample = scores(rng, times, sizes, score, rho)
        shares.append([held(score_ends(sample, which), score) for which in (known, alone)])
    first, second = np.concatenate(shares, axis=1).mean(1).tolist()
    return first, second


def cover_difference(
    rng: np.random.Generator,
    repetitions: int,
    sizes: NDArray[np.int64],
    both: tuple[float, float],
    rho: float,
    agreement: float,
) -> tuple[float, float, float]:
    """Share of intervals of a difference that hold it, clustered and independent; share of p values below .05."""
    total = int(sizes.sum())
    known, results = groups(sizes), []
    for times in in_parts(repetitions, 2 * total):
        sample = differences(rng, times, sizes, both, rho, agreement)[0]
        low, high, p = difference_ends(sample, known)
        results.append([held((low, high), both[1] - both[0]), held(naive(sample), both[1] - both[0]), p < ALPHA])
    first, second, third = np.concatenate(results, axis=1).mean(1).tolist()
    return first, second, third


def holm_errors(
    rng: np.random.Generator, repetitions: int, sizes: NDArray[np.int64], score: float, rho: float
) -> float:
    """Share of tables of :data:`TESTS` models as good as the reference in which one is called better or worse."""
    errors, known = 0, groups(sizes)
    for times in in_parts(repetitions, TESTS * int(sizes.sum())):
        sample = differences(rng, times, sizes, [score] * (TESTS + 1), rho, AGREEMENTS[0])
        values = np.stack([difference_ends(one, known)[2] for one in sample], 1)  # (times, tests)
        errors += sum(min(p for p in adjusted(row) if p is not None) < ALPHA for row in values.tolist())
    return errors / repetitions


def over_seeds(
    rng: np.random.Generator, repetitions: int, seeds: int, score: float, gain: float = 0.0
) -> tuple[float, float, float]:
    """Of seeds that answer the same 300 questions: share of means' and of differences' intervals that hold the truth.

    The third number is the share of differences whose interval lies within plus and minus ``gain``: where this is the
    true difference, each is an error of the test of equivalence.
    """
    hard, spread = 0.6 * norm.ppf(np.linspace(0.001, 0.999, 300)), 0.15
    offset = norm.ppf(score) * np.sqrt(1 + hard.var() + spread**2)
    ease = np.stack([hard + offset, hard + offset])
    ease[1] += _shift(ease[0], gain, spread)
    truth = norm.cdf(ease / np.sqrt(1 + spread**2)).mean(1)
    luck = rng.normal(0, spread, (repetitions, seeds, 2, 1))
    results = (rng.standard_normal((repetitions, seeds, 2, 300)) < ease + luck).mean(-1)  # (repetitions, seeds, 2)
    sure = [(interval(both[:, 0].tolist()), interval((both[:, 1] - both[:, 0]).tolist())) for both in results]
    nan = float("nan")  # all seeds alike: no interval, which holds nothing
    ends = np.array([[(one.low or nan, one.high or nan) for one in pair] for pair in sure])  # (repetitions, 2, 2)
    low, high = np.moveaxis(ends, 2, 0)
    within = (low <= (truth[0], truth[1] - truth[0])) & ((truth[0], truth[1] - truth[0]) <= high)
    equal = (-gain < low[:, 1]) & (high[:, 1] < gain)
    return float(within[:, 0].mean()), float(within[:, 1].mean()), float(equal.mean())


def _shift(ease: Answers, gain: float, spread: float) -> float:
    def rate(shift: float) -> float:
        return float(norm.cdf((ease + shift) / np.sqrt(1 + spread**2)).mean())

    low, high = 0.0, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rate(middle) - rate(0.0) < gain else (low, middle)
    return low


def groups(sizes: NDArray[np.int64]) -> Groups:
    """The pictures of answers in order."""
    return Groups.of(np.repeat(np.arange(len(sizes)), sizes))


def naive(sample: Answers) -> Ends:
    """Student's interval of independent differences."""
    mean, error = sample.mean(-1), sample.std(-1, ddof=1) / np.sqrt(sample.shape[-1])
    return mean - 1.96 * error, mean + 1.96 * error


def table(heads: str, rows: Iterator[tuple[str, Sequence[float]]]) -> list[float]:
    """Print lines of shares, and the smallest and the largest of the first column."""
    print(heads)
    firsts = []
    for label, shares in rows:
        firsts.append(shares[0])
        print(f"{label}  {'  '.join(f'{share:.3f}' for share in shares)}", flush=True)
    print(f"from {min(firsts):.3f} to {max(firsts):.3f}\n", flush=True)
    return firsts


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line a cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=1500)
    parser.add_argument("--answers", type=int, default=5, help="answers about each picture; 0: from 1 to 30 or so")
    parser.add_argument("--pictures", type=int, nargs="+", default=PICTURES)
    asked = parser.parse_args(arguments)
    rng, times = np.random.default_rng(7), asked.repetitions
    sizes = {count: sizes_of(count, asked.answers) for count in asked.pictures}
    cells = [(count, score, rho) for count in sizes for score in SCORES for rho in CORRELATIONS]
    rows = (
        (f"{count:>8} {score:>6} {rho:>4}", cover_score(rng, times, sizes[count], score, rho))
        for count, score, rho in cells
    )
    table("score: pictures, score, rho, held by the interval, by that of independent answers", rows)
    for gain in (0.0, GAIN):
        pairs = (
            (
                f"{count:>8} {score:>6} {rho:>4} {agreement:>5}",
                cover_difference(rng, times, sizes[count], _both(score, gain), rho, agreement),
            )
            for count, score, rho in cells
            for agreement in AGREEMENTS
            if count <= MOST_COMPARED
        )
        table(f"difference of {gain}: pictures, score, rho, agreement, held, independent, p < .05", pairs)
    corrected = (
        (f"{count:>8} {score:>6} {rho:>4}", [holm_errors(rng, times, sizes[count], score, rho)])
        for count, score, rho in cells
        if count <= MOST_COMPARED and score in (0.5, 0.9)
    )
    table(f"Holm over {TESTS} differences of 0: pictures, score, rho, tables with an error", corrected)
    seeds = (
        (f"{count:>8} {score:>6}", over_seeds(rng, times, count, score, GAIN))
        for count in SEEDS
        for score in (0.5, 0.9, 0.97)
    )
    table(f"seeds: number, score, held (mean), held (difference), called equal though {GAIN} apart", seeds)


def _both(score: float, gain: float) -> tuple[float, float]:
    return score, score + (gain if score <= 0.5 else -gain)


if __name__ == "__main__":
    main()
