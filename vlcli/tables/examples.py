"""Reads the results of an evaluate stage example by example."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from vlcli.metrics.clustered import Clusters, Values
from vlcli.metrics.clusters import read_clusters
from vlcli.metrics.rows import column, read_lines
from vlcli.tables.results import RunResults

PREDICTIONS = "predictions.jsonl"


def values_of(run: RunResults, metric: str) -> Values | None:
    """Return the values by example whose mean is a metric.

    None where the run has no predictions, or where the metric is not a mean over examples.
    """
    _, name, folder = run.place(metric)
    if folder is None or metric not in run.metrics:
        return None
    path = folder / PREDICTIONS
    changed = path.stat().st_mtime_ns if path.is_file() else -1  # a file that was written anew is read anew
    return _column(path, changed, name, run.metrics[metric])


def clusters_of(run: RunResults, metric: str) -> Clusters | None:
    """Return the cluster of each example of a metric; None where the images of examples are not known."""
    folder = run.place(metric)[2]
    return None if folder is None else read_clusters(folder)


@lru_cache(maxsize=64)
def _rows(path: Path, changed: int) -> list[dict[str, Any]]:
    return [] if changed < 0 else read_lines(path)[0]


@lru_cache(maxsize=1024)
def _column(path: Path, changed: int, name: str, value: float) -> Values | None:
    rows = _rows(path, changed)
    return column(name, value, rows) if rows else None
