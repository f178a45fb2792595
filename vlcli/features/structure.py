"""Checks the structure of a feature store's file when it is opened, without reading the features."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from vlcli.errors import DataError
from vlcli.features.schema import FIELDS

NEEDED = ("ids", "sizes", "offsets", "checksums", "provenance", "features", "boxes")
# Letters of ``dtype.kind`` that a data set may have.
KINDS = {"ids": "SO", "sizes": "iu", "offsets": "iu", "checksums": "iu", "provenance": "SO"}
KINDS |= {name: {"": "f", "float32": "f", "int32": "iu", "S": "S"}[field.dtype] for name, field in FIELDS.items()}
# Regions of a picture that are read: of more, a small file can fill the memory.
MOST_REGIONS = 100_000


def damaged(path: Path, got: str) -> DataError:
    """Make the error for a store that no extraction can have written."""
    what, hint = "the feature store is damaged", "delete it and run the extraction again"
    expected = "a file as vlcli extract or vlcli features import writes it"
    return DataError(what, where=str(path), got=got, expected=expected, hint=hint)


def check_sets(file: h5py.File, path: Path) -> None:
    """Refuse a file whose box sets are no groups."""
    sets = _member(file, "sets", path)
    if not isinstance(sets, h5py.Group):
        raise damaged(path, "`sets` is no group")
    for name in sets:
        if not isinstance(_member(sets, name, path), h5py.Group):
            raise damaged(path, f"the box set {name!r} is no group")


def datasets_of(group: h5py.Group, path: Path, *, index: bool = False) -> dict[str, h5py.Dataset]:
    """Return the data sets of a box set by name; those of an ``index`` of shards are virtual."""
    absent = [name for name in NEEDED if group.get(name, getlink=True) is None]
    if absent:
        raise damaged(path, f"the box set {group.name} lacks {', '.join(absent)}")
    members = {name: _member(group, name, path) for name in (*NEEDED, *FIELDS) if name in group}
    for name, data in members.items():
        if not isinstance(data, h5py.Dataset):
            raise damaged(path, f"{name} is no data set")
        if (data.is_virtual and not index) or data.external:
            raise damaged(path, f"the values of {name} lie in another file")
        strings = data.dtype.kind != "O" or h5py.check_string_dtype(data.dtype) is not None
        if data.dtype.kind not in KINDS[name] or not strings or (data.dtype.kind in "fiu" and data.dtype.itemsize > 8):
            raise damaged(path, f"{name} holds values of type {data.dtype}")
    return members


def _member(group: h5py.Group, name: str, path: Path) -> Any:
    link = group.get(name, getlink=True)
    if link is None:
        raise damaged(path, f"{group.name.rstrip('/')}/{name} is missing")
    if not isinstance(link, h5py.HardLink):
        raise damaged(path, f"{group.name.rstrip('/')}/{name} is a link ({type(link).__name__})")
    return group[name]


def index_problems(ids: list[str], sizes: np.ndarray, offsets: np.ndarray, checksums: np.ndarray) -> list[str]:
    """Return faults of the arrays with one row per image (sizes, offsets, checksums), one sentence each."""
    count = len(ids)
    shapes = (("sizes", sizes, (count, 2)), ("offsets", offsets, (count + 1,)), ("checksums", checksums, (count,)))
    problems = [
        f"{name} has shape {array.shape} for {count} images, expected {shape}"
        for name, array, shape in shapes
        if array.shape != shape
    ]
    if problems:
        return problems
    falls = offsets[1:] < offsets[:-1]
    if offsets[0] != 0 or falls.any():
        problems.append(f"the offsets do not rise from 0 (at image {0 if offsets[0] else int(np.argmax(falls))})")
    elif count and (most := int(np.diff(offsets).max())) > MOST_REGIONS:
        largest = ids[int(np.argmax(np.diff(offsets)))]
        problems.append(f"image {largest!r} has {most:,} regions, more than {MOST_REGIONS:,}")
    if (sizes < 1).any():
        bad = int(np.argmin(sizes.min(axis=1)))
        problems.append(f"the size of image {ids[bad]!r} is {sizes[bad].tolist()}, not positive")
    return problems


def shape_problems(shapes: dict[str, tuple[int, ...]], rows: int) -> list[str]:
    """Return faults of shapes, one sentence each: another number of rows, or another width of a field."""
    problems = []
    for name, shape in shapes.items():
        width = FIELDS[name].width
        fits = len(shape) == (1 if width == 0 else 2) and (not width or shape[1] == width)
        if not fits:
            problems.append(f"{name} has shape {shape}, expected {(rows,) if width == 0 else (rows, width or 'D')}")
        elif shape[0] != rows:
            problems.append(f"{name} has {shape[0]} rows, the offsets end at {rows}")
    return problems


def unlike_length(path: Path) -> str:
    """Return, in words, how the size of a file differs from the end in its superblock; empty where they agree.

    HDF5 refuses a file that is too short. One that is too long has inserted bytes: every address behind them is wrong,
    and reading an attribute may never end.
    """
    with path.open("rb") as file:
        head = file.read(48)
    at = {0: (24, 40), 2: (12, 28), 3: (12, 28)}.get(head[8] if len(head) == 48 else -1)
    if head[:8] != b"\x89HDF\r\n\x1a\n" or at is None:
        return ""
    base, end = (int.from_bytes(head[place : place + 8], "little") for place in at)
    size = path.stat().st_size
    return f"{size:,} bytes, and the file says {end:,}" if base == 0 and size > end else ""
