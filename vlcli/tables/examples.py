"""Results example by example: what an evaluate stage wrote about each, and which examples share an image.

Two examples that share an image are not independent: they belong to one cluster. So do two that are joined by others
(pairs of images that overlap).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from vlcli.metrics.rows import column, read_lines
from vlcli.tables.results import RunResults

PREDICTIONS, IMAGES = "predictions.jsonl", "images.jsonl"
SIDES = ("image/", "text/")
"""Beginnings of keys in the rows of rankings: image retrieval for a sentence, sentences for an image."""

Values = Mapping[str, float]
"""One number per example, by the example's key."""


def values_of(run: RunResults, metric: str) -> Values | None:
    """What a metric is the mean of, by example.

    Args:
        run: with metrics.
        metric: its name.

    Returns:
        None where the run has no predictions, or where the metric is not a mean over examples.
    """
    _, name, folder = run.place(metric)
    if folder is None or metric not in run.metrics:
        return None
    path = folder / PREDICTIONS
    return _column(path, _changed(path), name, run.metrics[metric])


def clusters_of(run: RunResults, metric: str) -> Mapping[str, str] | None:
    """The cluster of each example of a metric: the first image of those that its images are joined with.

    None where the evaluate stage did not write which images its examples have (versions before 0.2).
    """
    folder = run.place(metric)[2]
    return None if folder is None else _clusters(folder / IMAGES, _changed(folder / IMAGES))


def cluster(key: str, clusters: Mapping[str, str]) -> str:
    """The cluster of a row of predictions; rows of rankings are named after a side and an example or an image."""
    bare = next((key.removeprefix(side) for side in SIDES if key.startswith(side)), key)
    return clusters.get(key) or clusters.get(bare) or bare


def _changed(path: Path) -> int:
    """When a file was last written, so that a file that was written anew is read anew."""
    return path.stat().st_mtime_ns if path.is_file() else -1


@lru_cache(maxsize=64)
def _rows(path: Path, changed: int) -> list[dict[str, Any]]:
    return [] if changed < 0 else read_lines(path)[0]


@lru_cache(maxsize=1024)
def _column(path: Path, changed: int, name: str, value: float) -> Values | None:
    rows = _rows(path, changed)
    return column(name, value, rows) if rows else None


@lru_cache(maxsize=64)
def _clusters(path: Path, changed: int) -> Mapping[str, str] | None:
    rows = _rows(path, changed)
    if not rows:
        return None
    images = {str(row.get("key")): [str(image) for image in row.get("images") or []] for row in rows}
    first = _joined(images.values())
    found = {key: first[names[0]] for key, names in images.items() if names}
    asking = {f"text/{name}": one for name, one in first.items()}  # an example may have the name of another's picture
    return first | found | asking


def _joined(groups: Iterable[list[str]]) -> dict[str, str]:
    """The first of each connected set of images, by image."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    groups = [names for names in groups if names]
    place = {name: number for number, name in enumerate(dict.fromkeys(name for names in groups for name in names))}
    pairs = [(place[names[0]], place[name]) for names in groups for name in names]
    starts, ends = ([pair[side] for pair in pairs] for side in (0, 1))
    graph = coo_array(([1] * len(pairs), (starts, ends)), shape=(len(place), len(place)))
    labels = connected_components(graph, directed=False)[1].tolist()
    first: dict[int, str] = {}
    return {name: first.setdefault(label, name) for name, label in zip(place, labels, strict=True)}
