"""Finds the examples in columns that lack a picture, and remembers them while the folders stay as they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlcli.data.columns.index import remembered, state_of
from vlcli.data.columns.lock import locked
from vlcli.data.columns.table import ColumnExamples
from vlcli.files import write_json

_CHUNK = 1 << 16
# Absent pictures, and folders, that are noted; with more the look is taken anew.
_MOST_KEPT = 100_000
Absent = Callable[[list[str]], set[str]]


def absent_images(
    examples: ColumnExamples, absent: Absent, where: Callable[[str], Path] | None, key: Sequence[Any] | None
) -> set[str]:
    """Return the images of some examples that are not there.

    Args:
        examples: in columns.
        absent: returns those of some images that are not there.
        where: gives an image's file, where files are looked for: while all folders that hold them keep their time of
            change, no file was added or removed. None: ``key`` says all.
        key: what else the answer depends on; None: it is not known, and nothing is remembered.
    """
    note = None if key is None else remembered(examples, "presence", key)
    if note is not None and (known := _remembered_absent(note)) is not None:
        return known
    missing: set[str] = set()
    folders: dict[str, list[int]] = {}
    for first in range(0, len(examples), _CHUNK):
        rows = range(first, min(first + _CHUNK, len(examples)))
        names = list(dict.fromkeys(name for row in rows for name in examples.image_names(row)))
        if where is not None and len(folders) < _MOST_KEPT:
            for folder in {str(where(name).parent) for name in names} - set(folders):
                folders[folder] = state_of(Path(folder))
        missing |= absent(names)
    if note is not None and len(missing) < _MOST_KEPT and len(folders) < _MOST_KEPT:
        with locked(examples.folder.parent):
            write_json(note, {"absent": sorted(missing), "folders": folders})
    return missing


def rows_without(examples: ColumnExamples, absent: set[str]) -> NDArray[np.int64]:
    """Return the numbers of the examples that have none of the images ``absent``."""
    kept = (row for row in range(len(examples)) if absent.isdisjoint(examples.image_names(row)))
    return np.fromiter(kept, np.int64)


def _remembered_absent(note: Path) -> set[str] | None:
    try:
        content = json.loads(note.read_bytes())
        return set(content["absent"]) if all(state_of(Path(f)) == s for f, s in content["folders"].items()) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
