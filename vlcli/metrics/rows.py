"""Intervals of metrics from the rows of ``predictions.jsonl``.

A metric gets an interval only where its value is, to six digits, the mean of a field over rows.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from vlcli.metrics.baseline import beside, without_baselines
from vlcli.metrics.clustered import Clusters, difference_interval, score_interval
from vlcli.metrics.interval import Interval

Row = Mapping[str, Any]
MOST_ROWS = 500_000  # rows of one ``predictions.jsonl`` that are read
_LONGEST_LINE = 1_000_000
# Fields of a row of which a metric may be the mean, besides the field of its name
FIELDS: Mapping[str, tuple[str, ...]] = {"accuracy": ("accuracy", "correct"), "top1": ("correct",), "top5": ("in_top",)}
_CLOSE = 1e-6


@dataclass(frozen=True)
class Measured:
    """A metric with its interval.

    Attributes:
        low: lower end of the 95 % interval; None where the rows do not say.
        count: rows that the metric is the mean of; 0 where the rows do not say.
        images: clusters of rows that share an image; 0 where the images are not known.
        baseline: what the most frequent answer or chance scores; None where neither is known.
        by: ``most frequent`` or ``chance``.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    count: int = 0
    images: int = 0
    baseline: float | None = None
    by: str = ""


@dataclass(frozen=True)
class Paired:
    """The difference of one metric between two sets of predictions for the same keys.

    Attributes:
        low: lower end of the 95 % interval of ``second - first``; None where the rows do not pair.
        count: keys that both have; 0 where the rows do not pair.
        images: clusters of keys that share an image; 0 where the images are not known.
    """

    name: str
    first: float | None
    second: float | None
    low: float | None = None
    high: float | None = None
    count: int = 0
    images: int = 0

    @property
    def difference(self) -> float | None:
        return None if self.first is None or self.second is None else self.second - self.first


def column(name: str, value: float, rows: Sequence[Row]) -> dict[str, float] | None:
    """Return what a metric (``accuracy/KIND``, ``image/r@5``) is the mean of, by key; None: no field has this mean."""
    for values in _candidates(name, rows):
        if values and math.isclose(math.fsum(values.values()) / len(values), value, abs_tol=_CLOSE):
            return values
    return None


def _candidates(name: str, rows: Sequence[Row]) -> Iterator[dict[str, float]]:
    first, _, kind = name.partition("/")
    if kind.startswith("r@") and kind[2:].isdigit():
        ranks = _field([row for row in rows if str(row.get("key", "")).startswith(f"{first}/")], "rank")
        yield {key: float(rank <= int(kind[2:])) for key, rank in ranks.items()}
    parts = [[row for row in rows if str(row.get(group)) == kind] for group in kind_fields(rows)] if kind else [rows]
    for part in parts:
        yield from (_field(part, field) for field in dict.fromkeys((name, first, *FIELDS.get(first, ()))))


def _field(rows: Sequence[Row], field: str) -> dict[str, float]:
    values = {str(row.get("key", number)): row.get(field) for number, row in enumerate(rows)}
    return {key: float(value) for key, value in values.items() if isinstance(value, bool | int | float)}


def kind_fields(rows: Sequence[Row]) -> list[str]:
    """Return the fields that hold an example's kind: ``kind`` and those whose name ends in ``type`` or ``_kind``."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name == "kind" or name.endswith(("type", "_kind", "types"))]


def measured(metrics: Mapping[str, float], rows: Sequence[Row], clusters: Clusters | None = None) -> list[Measured]:
    """Return every metric of a stage with its interval and its baseline; without ``rows`` there is no interval."""
    results = []
    for name in without_baselines(metrics):
        values = column(name, metrics[name], rows)
        sure = score_interval(values, clusters) if values else Interval(metrics[name], count=0)
        counts = (len(values or ()), sure.count if clusters is not None else 0)
        other = beside(name, metrics)
        by = "" if other is None else "chance" if other.startswith("chance") else "most frequent"
        baseline = None if other is None else metrics[other]
        results.append(Measured(name, metrics[name], sure.low, sure.high, *counts, baseline, by))
    return results


def paired(
    first: Mapping[str, float],
    second: Mapping[str, float],
    first_rows: Sequence[Row] = (),
    second_rows: Sequence[Row] = (),
    clusters: Clusters | None = None,
) -> list[Paired]:
    """Return every metric of two stages and their difference, with an interval where the rows have the same keys."""
    pairs = []
    for name in dict.fromkeys([*without_baselines(first), *without_baselines(second)]):
        one = column(name, first[name], first_rows) if name in first and first_rows else None
        other = column(name, second[name], second_rows) if name in second and second_rows else None
        pair = Paired(name, first.get(name), second.get(name))
        if one is not None and other is not None and one.keys() == other.keys():
            sure = difference_interval([{key: other[key] - one[key] for key in one}], clusters)
            images = sure.count if clusters is not None else 0
            pair = replace(pair, low=sure.low, high=sure.high, count=len(one), images=images)
        pairs.append(pair)
    return pairs


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Read the objects of a JSON-lines file, no more than :data:`MOST_ROWS`, and the number of damaged lines."""
    rows: list[dict[str, Any]] = []
    damaged = 0
    try:
        with path.open("rb") as file:
            for line in islice(iter(partial(file.readline, _LONGEST_LINE), b""), MOST_ROWS):
                row = _parsed(line)
                rows += [row] if isinstance(row, dict) else []
                damaged += bool(line.strip()) and not isinstance(row, dict)
    except OSError:
        damaged += 1
    return rows, damaged


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
