"""Write box sets into an HDF5 file: from records in memory, or by copying from other stores."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from vlcli.features.file import SetFile, open_hdf5
from vlcli.features.schema import FIELDS, FORMAT, SCHEMA_VERSION, Record, checksum, encode_strings
from vlcli.version import __version__

BLOCK_BYTES = 16 << 20
"""Rows are copied in blocks of about this size: large enough to be fast, small enough for any machine."""


@dataclass(frozen=True)
class StoredPart:
    """Some images of an opened box set.

    Attributes:
        file: the box set.
        index: which images, by their number in it.
    """

    file: SetFile
    index: np.ndarray

    @classmethod
    def whole(cls, file: SetFile) -> StoredPart:
        """All images."""
        return cls(file, np.arange(len(file)))


def create_file(path: Path) -> h5py.File:
    """A new, empty store that says what it is."""
    file = h5py.File(path, "w")
    file.attrs.update({"format": FORMAT, "schema": SCHEMA_VERSION, "vlcli": __version__})
    file.create_group("sets")
    return file


def copy_sets(file: h5py.File, source: Path, names: Sequence[str]) -> None:
    """Copy whole box sets from another store, as they are."""
    if names:
        with open_hdf5(source) as other:
            for name in names:
                other.copy(f"sets/{name}", file["sets"], name)


def write_records(file: h5py.File, name: str, records: Sequence[Record], provenance: dict[str, Any]) -> None:
    """Write normalised records of one layout as a box set."""
    group = file["sets"].create_group(name)
    counts = [len(record) for record in records]
    sums = np.array([checksum(record) for record in records], dtype=np.uint32)
    write_index(group, [r.id for r in records], [r.size for r in records], counts, sums)
    for field in records[0].arrays():
        group.create_dataset(field, data=np.concatenate([record.arrays()[field] for record in records]))
    write_provenance(group, provenance)


def write_index(group: h5py.Group, ids: Sequence[str], sizes: Any, counts: Sequence[int], sums: np.ndarray) -> None:
    """Write what is known of each image: id, size, first row, checksum."""
    group.create_dataset("ids", data=encode_strings(ids))
    group.create_dataset("sizes", data=np.asarray(sizes, dtype=np.int32).reshape(-1, 2))
    group.create_dataset("offsets", data=np.cumsum([0, *counts], dtype=np.int64))
    group.create_dataset("checksums", data=np.asarray(sums, dtype=np.uint32))


def write_provenance(group: h5py.Group, provenance: dict[str, Any]) -> None:
    """Write what made a box set, once its features are there."""
    # The whole of it is a data set: an attribute may not exceed 64 kB, and vocabularies do.
    group.create_dataset("provenance", data=json.dumps(provenance, ensure_ascii=False, sort_keys=True))
    for key in ("extractor", "weights_sha256", "boxes"):
        value = provenance.get(key, "")
        group.attrs[key] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:4096]
    group.attrs["dtype"] = str(group["features"].dtype)
    group.attrs["dim"] = int(group["features"].shape[1])


def write_sources(
    file: h5py.File,
    name: str,
    sources: Sequence[StoredPart],
    provenance: dict[str, Any],
    *,
    order: Sequence[str] | None = None,
    compression: str | None = None,
    widths: dict[str, int] | None = None,
    dtype: str = "float16",
    tick: Callable[[int], None] | None = None,
) -> None:
    """Copy images of other box sets into one new set.

    Args:
        file: where to.
        name: the new box set.
        sources: where from; they share one layout.
        provenance: the new set's.
        order: ids in the order wanted; those it does not name follow in the order of the sources.
        compression: h5py's name of a filter; None for contiguous data sets.
        widths: fields and widths (0: a vector); by default the sources'.
        dtype: float type, where there is no source to tell.
        tick: called with the number of images copied since the last call.
    """
    group = file["sets"].create_group(name)
    places = _places(sources, order)
    picked = [(sources[s].file, i) for s, i in places]
    counts = [int(part.offsets[i + 1] - part.offsets[i]) for part, i in picked]
    sums = np.array([part.checksums[i] for part, i in picked], dtype=np.uint32)
    write_index(group, [part.ids[i] for part, i in picked], [part.sizes[i] for part, i in picked], counts, sums)
    fields = widths or _widths(sources)
    data = {
        field: _create(group, field, (sum(counts), width), _dtype(field, sources, dtype), compression)
        for field, width in fields.items()
    }
    for first, start, blocks in _blocks(picked, list(data)):
        for field, rows in blocks.items():
            if len(rows):
                data[field][start : start + len(rows)] = rows
        if tick:
            tick(first)
    write_provenance(group, provenance)


def _widths(sources: Sequence[StoredPart]) -> dict[str, int]:
    if not sources:
        return {"features": 0, "boxes": 4}
    return {field: shape[1] if len(shape) > 1 else 0 for field, shape in sources[0].file.shapes.items()}


def _dtype(field: str, sources: Sequence[StoredPart], dtype: str) -> np.dtype[Any]:
    if FIELDS[field].dtype == "S":
        return np.dtype(f"S{max([1, *(source.file.dtypes[field].itemsize for source in sources)])}")
    return np.dtype(FIELDS[field].dtype or (sources[0].file.dtypes[field] if sources else dtype))


def _create(
    group: h5py.Group, field: str, shape: tuple[int, int], dtype: np.dtype[Any], compression: str | None
) -> h5py.Dataset:
    shape_here = shape[:1] if FIELDS[field].width == 0 else shape
    if compression is None or 0 in shape_here:
        return group.create_dataset(field, shape_here, dtype)
    width = max(1, int(np.prod(shape_here[1:])) * dtype.itemsize)
    rows = min(shape_here[0], max(1, (256 << 10) // width))  # about an image's worth per chunk, for random reads
    chunks = (rows, *shape_here[1:])
    return group.create_dataset(field, shape_here, dtype, chunks=chunks, compression=compression, shuffle=True)


def _places(sources: Sequence[StoredPart], order: Sequence[str] | None) -> list[tuple[int, int]]:
    """(source, image) of every image once, the first source that holds it winning."""
    where: dict[str, tuple[int, int]] = {}
    for number, source in enumerate(sources):
        for image in source.index.tolist():
            where.setdefault(source.file.ids[image], (number, image))
    wanted = [name for name in dict.fromkeys(order or ()) if name in where]
    listed = set(wanted)
    return [where[name] for name in [*wanted, *(name for name in where if name not in listed)]]


def _blocks(
    picked: Sequence[tuple[SetFile, int]], fields: Sequence[str]
) -> Iterator[tuple[int, int, dict[str, np.ndarray]]]:
    """Images joined into blocks: (number of images, first row, rows per field)."""
    held: list[Record] = []
    start = rows = size = 0
    for part, image in picked:
        record = part.record(image, copy=False)
        held.append(record)
        rows += len(record)
        size += sum(array.nbytes for array in record.arrays().values())
        if size >= BLOCK_BYTES:
            yield len(held), start, _joined(held, fields)
            held, start, size = [], start + rows, 0
            rows = 0
    if held:
        yield len(held), start, _joined(held, fields)


def _joined(records: Sequence[Record], fields: Sequence[str]) -> dict[str, np.ndarray]:
    return {field: np.concatenate([getattr(record, field) for record in records]) for field in fields}
