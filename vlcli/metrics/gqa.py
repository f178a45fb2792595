"""GQA: accuracy and the further scores of the official evaluation (Hudson and Manning 2019, section 4.4).

Rows are predictions with ``key``, ``prediction``, ``answer`` and what the question file says: ``structural``,
``semantic`` and ``detailed`` type, ``group``, ``balanced``, ``entailed``.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vlcli.metrics.baseline import most_frequent
from vlcli.metrics.classification import by_kind

Row = Mapping[str, Any]
COMMON = ("color", "material", "shape")
"""Valid answers to questions about what two objects have in common, whatever the file of choices says."""


def scores(rows: Sequence[Row], choices: Mapping[str, Mapping[str, Sequence[str]]] | None = None) -> dict[str, float]:
    """Return every score that the rows allow: accuracies and distribution over balanced questions.

    Each accuracy stands beside ``most_frequent``, that of the most frequent answer to the same questions. An answer is
    right where it is the known one to the letter, as in the official evaluation: "Yes" is not "yes".

    Args:
        rows: predictions whose answer is known.
        choices: ``valid`` and ``plausible`` answers by question id.
    """
    judged = [{**row, "correct": is_right(row["prediction"], row["answer"])} for row in rows]
    balanced = [row for row in judged if row.get("balanced", True)]
    if not balanced:
        return {}
    results = {"accuracy": _mean(row["correct"] for row in balanced), **most_frequent(balanced)}
    typed = [
        {**row, "kind": "open" if row["structural"] == "query" else "binary"}
        for row in balanced
        if row.get("structural")
    ]
    results |= by_kind(typed, "kind") | most_frequent(typed, "kind")
    for kind in ("structural", "semantic"):
        results |= {f"accuracy/{name}": value for name, value in by_kind(balanced, kind).items()}
        results |= most_frequent(balanced, kind)
    if (value := consistency(balanced, judged)) is not None:
        results["consistency"] = value
    if (value := distribution(balanced)) is not None:
        results["distribution"] = value
    known = [row for row in balanced if row["key"] in choices] if choices else []
    if choices and known:
        results["validity"] = _mean(_belongs(row, choices[row["key"]]["valid"]) for row in known)
        results["plausibility"] = _mean(_belongs(row, choices[row["key"]]["plausible"]) for row in known)
    return results


def is_right(prediction: Any, answer: Any) -> bool:
    """Return whether a prediction is the answer, to the letter."""
    return str(prediction) == str(answer)


def _mean(values: Iterable[float]) -> float:
    listed = [float(value) for value in values]
    return sum(listed) / len(listed) if listed else 0.0


def consistency(rows: Iterable[Row], judged: Iterable[Row]) -> float | None:
    """Return the mean over rightly answered questions of the share of right ones among those that their answer settles.

    The official evaluation wants predictions for all questions; here, entailed questions without one are left out.

    Args:
        rows: the questions whose entailed ones count, with ``correct``.
        judged: every question that was answered, with ``correct``.

    Returns:
        None where no right answer settles another question that was answered.
    """
    right = {row["key"]: bool(row["correct"]) for row in judged}
    shares = []
    for row in rows:
        settled = [right[other] for other in row.get("entailed") or () if other != row["key"] and other in right]
        if row["correct"] and settled:
            shares.append(_mean(settled))
    return _mean(shares) if shares else None


def distribution(rows: Iterable[Row]) -> float | None:
    """Return the chi-square distance of predicted and true answers within question groups, over 100; less is better."""
    true: dict[str, Counter[str]] = defaultdict(Counter)
    guessed: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row.get("group"):
            true[row["group"]][row["answer"]] += 1
            guessed[row["group"]][row["prediction"]] += 1
    total = sum(counts.total() for counts in true.values())
    if not total:
        return None
    distances = (
        counts.total() * sum((guessed[group][answer] - count) ** 2 / count for answer, count in counts.items())
        for group, counts in true.items()
    )
    return sum(distances) / total / 100


def _belongs(row: Row, group: Sequence[str]) -> bool:
    return row["prediction"] in (COMMON if "Common" in row.get("detailed", "") else group)
