"""Writes box sets into an HDF5 file, from records in memory or from other stores."""

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

# Bytes of rows that are copied at a time.
BLOCK_BYTES = 16 << 20


@dataclass(frozen=True)
class StoredPart:
    """Some images of an opened box set, by their number in it; ``index`` None: all."""

    file: SetFile
    index: np.ndarray | None = None


def create_file(path: Path) -> h5py.File:
    """Create an empty store with its format, schema and version."""
    file = h5py.File(path, "w")
    file.attrs.update({"format": FORMAT, "schema": SCHEMA_VERSION, "vlcli": __version__})
    file.create_group("sets")
    return file


def copy_sets(file: h5py.File, source: Path, names: Sequence[str]) -> None:
    """Copy whole box sets from another store."""
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
    """Write id, size, first row and checksum of each image."""
    group.create_dataset("ids", data=encode_strings(ids))
    group.create_dataset("sizes", data=np.asarray(sizes, dtype=np.int32).reshape(-1, 2))
    group.create_dataset("offsets", data=np.cumsum([0, *counts], dtype=np.int64))
    group.create_dataset("checksums", data=np.asarray(sums, dtype=np.uint32))


def write_provenance(group: h5py.Group, provenance: dict[str, Any]) -> None:
    """Write the provenance of a box set whose features are written."""
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
        order: ids in the order wanted; others follow in the order of the sources.
        compression: h5py's name of a filter; None for contiguous data sets.
        widths: fields and widths (0: a vector); by default the sources'.
        dtype: float type, where there is no source.
        tick: called with the number of images copied since the last call.
    """
    group = file["sets"].create_group(name)
    picked = _picked(sources, order)
    counts = [int(part.offsets[i + 1] - part.offsets[i]) for part, i in picked]
    sums = np.array([part.checksums[i] for part, i in picked], dtype=np.uint32)
    write_index(group, [part.ids[i] for part, i in picked], [part.sizes[i] for part, i in picked], counts, sums)
    if widths is None:
        shapes = sources[0].file.shapes if sources else {"features": (0, 0), "boxes": (0, 4)}
        widths = {field: shape[1] if len(shape) > 1 else 0 for field, shape in shapes.items()}
    data = {
        field: _create(group, field, (sum(counts), width), _dtype(field, sources, dtype), compression)
        for field, width in widths.items()
    }
    start = 0
    for records in _blocks(picked):
        stop = start + sum(map(len, records))
        for field, target in data.items():
            if stop > start:
                target[start:stop] = np.concatenate([getattr(record, field) for record in records])
        start = stop
        if tick:
            tick(len(records))
    write_provenance(group, provenance)


def _dtype(field: str, sources: Sequence[StoredPart], dtype: str) -> np.dtype[Any]:
    if FIELDS[field].dtype == "S":
        return np.dtype(f"S{max([1, *(source.file.dtypes[field].itemsize for source in sources)])}")
    return np.dtype(FIELDS[field].dtype or (sources[0].file.dtypes[field] if sources else dtype))


def _create(
    group: h5py.Group, field: str, shape: tuple[int, int], dtype: np.dtype[Any], compression: str | None
) -> h5py.Dataset:
    full = shape[:1] if FIELDS[field].width == 0 else shape
    if compression is None or 0 in full:
        return group.create_dataset(field, full, dtype)
    width = max(1, int(np.prod(full[1:])) * dtype.itemsize)
    rows = min(full[0], max(1, (256 << 10) // width))  # about an image's worth per chunk, for random reads
    chunks = (rows, *full[1:])
    return group.create_dataset(field, full, dtype, chunks=chunks, compression=compression, shuffle=True)


def _picked(sources: Sequence[StoredPart], order: Sequence[str] | None) -> list[tuple[SetFile, int]]:
    """Return file and number of every image once, of the first source that holds it."""
    images: dict[str, tuple[SetFile, int]] = {}
    for source in sources:
        for image in range(len(source.file)) if source.index is None else source.index.tolist():
            images.setdefault(source.file.ids[image], (source.file, image))
    names = dict.fromkeys(name for name in order or () if name in images)
    return [images[name] for name in dict.fromkeys([*names, *images])]


def _blocks(picked: Sequence[tuple[SetFile, int]]) -> Iterator[list[Record]]:
    records: list[Record] = []
    size = 0
    for part, image in picked:
        records.append(part.record(image, copy=False))
        size += sum(array.nbytes for array in records[-1].arrays().values())
        if size >= BLOCK_BYTES:
            yield records
            records, size = [], 0
    if records:
        yield records
