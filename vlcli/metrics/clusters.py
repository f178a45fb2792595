"""Reads clusters of examples that share an image, directly or through other examples (pairs of images)."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from vlcli.metrics.clustered import Clusters
from vlcli.metrics.rows import read_lines

IMAGES = "images.jsonl"  # the file in which an evaluate stage writes which images its examples have


def read_clusters(folder: Path) -> Clusters | None:
    """Read each example's cluster, named by its first image, from an evaluate stage; None: it wrote no images."""
    path = folder / IMAGES
    return _clusters(path, path.stat().st_mtime_ns if path.is_file() else -1)


@lru_cache(maxsize=64)
def _clusters(path: Path, changed: int) -> Clusters | None:
    rows = [] if changed < 0 else read_lines(path)[0]
    if not rows:
        return None
    images = {str(row.get("key")): [str(image) for image in row.get("images") or []] for row in rows}
    first = _joined(images.values())
    by_key = {key: first[names[0]] for key, names in images.items() if names}
    # an example may have the name of another's picture
    return first | by_key | {f"text/{name}": one for name, one in first.items()}


def _joined(groups: Iterable[list[str]]) -> dict[str, str]:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    groups = [names for names in groups if names]
    rows = {name: row for row, name in enumerate(dict.fromkeys(name for names in groups for name in names))}
    pairs = [(rows[names[0]], rows[name]) for names in groups for name in names]
    starts, ends = ([pair[side] for pair in pairs] for side in (0, 1))
    graph = coo_array(([1] * len(pairs), (starts, ends)), shape=(len(rows), len(rows)))
    labels = connected_components(graph, directed=False)[1].tolist()
    first: dict[int, str] = {}
    return {name: first.setdefault(label, name) for name, label in zip(rows, labels, strict=True)}
