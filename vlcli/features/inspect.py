"""Describes and verifies a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vlcli.errors import DataError
from vlcli.features.file import SetFile, set_names
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import checksum, record_problems
from vlcli.progress import Progress, Silent


@dataclass(frozen=True)
class Fault:
    """One fault of a store: of an image (empty: of the whole file), in a file and box set."""

    image: str
    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.image + ': ' if self.image else ''}{self.what}"


def info(path: str | Path) -> dict[str, Any]:
    """Return a store's files, and counts, widths and provenance of each box set; DataError: missing or damaged."""
    store = FeatureStore(path)
    return {
        "path": str(path),
        "files": len(store.paths),
        "joined": bool(store.indexes),
        "bytes": sum(file.stat().st_size for file in store.paths),
        "sets": {name: _set_facts(name, files) for name, files in set_holders(store.paths).items()},
    }


def set_holders(files: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the files that hold each box set."""
    holders: dict[str, list[Path]] = {}
    for file in files:
        for name in set_names(file):
            holders.setdefault(name, []).append(file)
    return holders


def _set_facts(name: str, files: list[Path]) -> dict[str, Any]:
    parts = [SetFile(file, name) for file in files]
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    first = parts[0]
    return {
        "images": len(counts),
        "regions": int(counts.sum()),
        "regions_min": int(min(counts, default=0)),
        "regions_max": int(max(counts, default=0)),
        "dim": first.widths["features"],
        "dtype": str(first.dtypes["features"]),
        "fields": {name: list(shape[1:]) for name, shape in first.shapes.items()},
        "mapped": all(rows is not None for part in parts for rows in part.rows.values()),
        "provenance": first.provenance,
    }


def verify(path: str | Path, progress: Progress | None = None, limit: int = 1000) -> list[Fault]:
    """Read and check every record: offsets, unique ids, finite values, boxes inside the image, shapes, checksums.

    Args:
        path: a file, or a folder of shards or segments.
        limit: most faults to list.

    Raises:
        DataError: the store cannot be opened.
    """
    store = FeatureStore(path)
    faults = [fault for index in store.indexes for fault in _stale(index)]
    owners: dict[tuple[str, str], Path] = {}
    for file in store.paths:
        for name in set_names(file):
            where = f"{file} [{name}]"
            try:
                part = SetFile(file, name)
            except DataError as error:
                faults.append(Fault("", error.got, where))
                continue
            for image in part.ids:
                if (name, image) in owners:
                    faults.append(Fault(image, f"is there twice, also in {owners[name, image]}", where))
                owners[name, image] = part.path
            faults += _record_faults(part, where, progress or Silent(), limit - len(faults))
            if len(faults) >= limit:
                return faults[:limit]
    return faults


def _stale(index: Path) -> list[Fault]:
    faults = []
    for name in set_names(index):
        joined, parts = SetFile(index, name, index=True), FeatureStore(index, name).parts()
        held = [row for part in parts for row in zip(part.ids, part.checksums.tolist(), strict=True)]
        if held != list(zip(joined.ids, joined.checksums.tolist(), strict=True)):
            faults.append(Fault("", "the shards have changed since they were joined", f"{index} [{name}]"))
    return faults


def _record_faults(part: SetFile, where: str, progress: Progress, limit: int) -> list[Fault]:
    faults: list[Fault] = []
    with progress.task(f"verifying {part.name}", len(part), "image") as task:
        for index, image in enumerate(part.ids):
            if len(faults) >= limit:
                break
            try:
                record = part.record(index, copy=False)
                problems = record_problems(record)
                if checksum(record) != int(part.checksums[index]):
                    problems.append("its checksum does not match: the file was changed or damaged")
            except DataError as error:
                problems = [f"cannot be read: {error.got}"]
            faults += [Fault(image, what, where) for what in problems]
            task.advance()
    return faults
