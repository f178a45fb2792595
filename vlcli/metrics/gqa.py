"""GQA: accuracy and the further scores of the official evaluation (Hudson and Manning 2019, section 4.4).

Rows are predictions with ``key``, ``prediction``, ``answer`` and what the question file says: ``structural``,
``semantic`` and ``detailed`` type, ``group``, ``balanced``, ``entailed``.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from vlcli.metrics.baseline import most_frequent
from vlcli.metrics.classification import by_kind

Row = Mapping[str, Any]
# Valid answers to questions about what two objects have in common, whatever the file of choices says
COMMON = ("color", "material", "shape")


def scores(rows: Sequence[Row], choices: Mapping[str, Mapping[str, Sequence[str]]] | None = None) -> dict[str, float]:
    """Return every score that the rows allow: accuracies and distribution over balanced questions.

    Each accuracy stands beside ``most_frequent``. An answer is right where it is the known one to the letter, as in the
    official evaluation: "Yes" is not "yes".

    Args:
        rows: predictions whose answer is known.
        choices: ``valid`` and ``plausible`` answers by question id.
    """
    judged = [{**row, "correct": str(row["prediction"]) == str(row["answer"])} for row in rows]
    balanced = [row for row in judged if row.get("balanced", True)]
    if not balanced:
        return {}
    results = {"accuracy": fmean(row["correct"] for row in balanced), **most_frequent(balanced)}
    typed = [row for row in balanced if row.get("structural")]
    typed = [{**row, "kind": "open" if row["structural"] == "query" else "binary"} for row in typed]
    results |= by_kind(typed, "kind") | most_frequent(typed, "kind")
    for kind in ("structural", "semantic"):
        results |= by_kind(balanced, kind, prefix="accuracy/") | most_frequent(balanced, kind)
    results |= consistency(balanced, judged) | distribution(balanced)
    lists = [(row, choices[row["key"]]) for row in balanced if row["key"] in choices] if choices else []
    for name, key in (("validity", "valid"), ("plausibility", "plausible")) if lists else ():
        results[name] = fmean(_belongs(row, allowed[key]) for row, allowed in lists)
    return results


def consistency(rows: Iterable[Row], judged: Iterable[Row]) -> dict[str, float]:
    """Return ``consistency``: the mean over right ``rows`` of the share of right ones among their entailed questions.

    The official evaluation wants predictions for all questions; here, entailed questions that are not among ``judged``
    are left out, and nothing is returned where none is left.
    """
    right = {row["key"]: bool(row["correct"]) for row in judged}
    shares = []
    for row in rows:
        settled = [right[other] for other in row.get("entailed") or () if other != row["key"] and other in right]
        if row["correct"] and settled:
            shares.append(fmean(settled))
    return {"consistency": fmean(shares)} if shares else {}


def distribution(rows: Iterable[Row]) -> dict[str, float]:
    """Return the chi-square distance of predicted and true answers within question groups, over 100; less is better."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.get("group"):
            groups[row["group"]].append(row)
    total = 0.0
    for group in groups.values():
        true, guessed = (Counter(row[name] for row in group) for name in ("answer", "prediction"))
        total += len(group) * sum((guessed[answer] - count) ** 2 / count for answer, count in true.items())
    return {"distribution": total / sum(map(len, groups.values())) / 100} if groups else {}


def _belongs(row: Row, group: Sequence[str]) -> bool:
    return row["prediction"] in (COMMON if "Common" in row.get("detailed", "") else group)
