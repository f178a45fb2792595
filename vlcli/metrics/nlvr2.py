"""NLVR2: accuracy and consistency (Suhr et al. 2019, section 5; grouping of the official metrics)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def group_of(identifier: str) -> str:
    """Return the sentence an example asks about: ``split-set-pair-sentence`` without its third field, the pair."""
    parts = identifier.split("-")
    return "-".join(parts[:2] + parts[3:]) if len(parts) > 2 else identifier


def consistency(identifiers: Iterable[str], correct: Iterable[bool]) -> float:
    """Return the share of sentences that are judged rightly on every pair of pictures they come with."""
    groups: dict[str, bool] = {}
    for identifier, right in zip(identifiers, correct, strict=True):
        group = group_of(identifier)
        groups[group] = groups.get(group, True) and bool(right)
    return sum(groups.values()) / len(groups) if groups else 0.0


def accuracy(correct: Sequence[bool]) -> float:
    """Return the share of right ones; 0 of none."""
    return sum(map(bool, correct)) / len(correct) if correct else 0.0


def by_kind(rows: Iterable[Mapping[str, Any]], key: str, value: str = "correct") -> dict[str, float]:
    """Return the mean of ``value`` for each value of ``key``, sorted by it; rows without the key are left out."""
    groups: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.get(key) not in (None, ""):
            groups[str(row[key])].append(float(row[value]))
    return {kind: sum(groups[kind]) / len(groups[kind]) for kind in sorted(groups)}
