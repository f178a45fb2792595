"""Scores of the most frequent answer and of chance, with which accuracies are compared."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any, TypeVar

NAME = "most_frequent"  # the metric; ``most_frequent/KIND`` stands beside ``accuracy/KIND``
ONE_ANSWER = "one_answer"  # the share of examples that are given the most common answer, where that is collapse
CHANCE = "chance"  # ``chance/NAME`` stands beside the metric NAME: what a ranking in random order scores
ACCURACIES = ("accuracy", "top1", "aacc")  # metrics that it stands beside

MOST = 0.95  # the share of one answer from which a model counts as collapsed
Row = Mapping[str, Any]
Answer = TypeVar("Answer", str, tuple[str, ...])


def most_frequent(rows: Iterable[Row], kind: str | None = None) -> dict[str, float]:
    """Return the mean score of the one answer that is the best of most rows.

    Args:
        rows: with ``answers`` (answer -> score), or one true ``label`` or ``answer``; rows without are left out.
        kind: a field; the answer is chosen and scored within each of its values, as ``most_frequent/VALUE``.

    >>> most_frequent([{"label": "yes"}, {"label": "no"}, {"label": "yes"}])
    {'most_frequent': 0.6666666666666666}
    """
    groups: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    for row in rows:
        scores = _scores(row)
        if scores is not None and (kind is None or row.get(kind) not in (None, "")):
            groups[NAME if kind is None else f"{NAME}/{row[kind]}"].append(scores)
    means = {}
    for name, answers in sorted(groups.items()):
        best = most_common([_best(scores) for scores in answers if scores] or [""])
        means[name] = fmean(scores.get(best, 0.0) for scores in answers)
    return means


def beside(name: str, metrics: Mapping[str, float]) -> str | None:
    """Return the name of the baseline (or chance) in ``metrics`` for the metric ``name``; None where there is none.

    >>> beside("accuracy/color", {"accuracy/color": 0.5, "most_frequent/color": 0.4})
    'most_frequent/color'
    """
    first, slash, kind = name.partition("/")
    if name.startswith((NAME, f"{CHANCE}/")):
        return None
    baseline = NAME + slash + kind if first in ACCURACIES else f"{NAME}/{name}"
    return next((other for other in (baseline, f"{CHANCE}/{name}") if other in metrics), None)


def baselines(names: Iterable[str], metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the score of the most frequent answer (or chance) for each of these metrics that has one."""
    pairs = ((name, beside(name, metrics)) for name in names if name in metrics)
    return {name: metrics[other] for name, other in pairs if other is not None}


def by_chance(metrics: Mapping[str, float]) -> bool:
    """Return whether a baseline among these metrics is the chance level."""
    return any(name.startswith(f"{CHANCE}/") for name in metrics)


def without_baselines(metrics: Mapping[str, float]) -> list[str]:
    """Return the names of the metrics that are no baseline of another."""
    others = {beside(name, metrics) for name in metrics}
    return [name for name in metrics if name not in others]


def suspicious(metrics: Mapping[str, float]) -> list[str]:
    """Return a line for every overall accuracy that is exactly 0, or exactly what the most frequent answer scores."""
    lines = []
    for name, value in metrics.items():
        other = beside(name, metrics)
        if "/" in name or (other is None and name not in ACCURACIES):
            continue
        if value == 0:
            lines.append(f"{name} is exactly 0: no answer was right; compare predictions with the data's own answers")
        elif other is not None and math.isclose(value, metrics[other], rel_tol=1e-12):
            who = "chance" if other.startswith(f"{CHANCE}/") else "the most frequent answer"
            lines.append(f"{name} is exactly what {who} scores ({value:.3f}): no more was learned")
    return lines


def one_answer(predictions: Iterable[Row]) -> dict[str, float]:
    """Return :data:`ONE_ANSWER` if over 95 % of the rows with a truth predict one answer and no truth is as common."""
    pairs = [(str(row.get("prediction")), true_answer(row)) for row in predictions]
    rows = [pair for pair in pairs if pair[1] is not None]
    if not rows:
        return {}
    predicted, true = (Counter(column).most_common(1)[0][1] / len(rows) for column in zip(*rows, strict=True))
    return {ONE_ANSWER: predicted} if predicted > MOST > true else {}


def true_answer(row: Row) -> str | None:
    """Return the true answer of a row of predictions, of several the one with the highest score; None without any.

    >>> true_answer({"answers": {"red": 0.6, "blue": 1.0}})
    'blue'
    """
    scores = _scores(row)
    return _best(scores) if scores else None


def _scores(row: Row) -> Mapping[str, float] | None:
    answers = row.get("answers")
    if isinstance(answers, Mapping):
        return answers
    truth = row.get("label", row.get("answer"))
    return None if truth is None else {str(truth): 1.0}


def _best(scores: Mapping[str, float]) -> str:
    return max(scores, key=lambda answer: scores[answer])


def most_common(answers: Iterable[Answer]) -> Answer:
    """Return the most frequent answer; of equally frequent ones, the first by the alphabet."""
    counts = Counter(answers)
    return min(counts, key=lambda answer: (-counts[answer], answer))
