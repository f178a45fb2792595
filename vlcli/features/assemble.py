"""Writes box sets into an HDF5 file, from records in memory or from other stores."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike

from vlcli.features.file import SetFile, open_hdf5
from vlcli.features.schema import FIELDS, FORMAT, SCHEMA_VERSION, Record, checksum, encode_strings
from vlcli.version import __version__

# Bytes of rows that are copied at a time.
BLOCK_BYTES = 16 << 20


def create_file(path: Path) -> h5py.File:
    """Create an empty store with its format, schema and version."""
    file = h5py.File(path, "w")
    file.attrs.update({"format": FORMAT, "schema": SCHEMA_VERSION, "vlcli": __version__})
    file.create_group("sets")
    return file


def copy_other_sets(file: h5py.File, source: Path, name: str) -> None:
    """Copy the box sets of another store without the set ``name``."""
    with open_hdf5(source) as stored:
        for other in stored["sets"]:
            if other != name:
                stored.copy(f"sets/{other}", file["sets"], other)


def write_records(file: h5py.File, name: str, records: Sequence[Record], provenance: dict[str, Any]) -> None:
    """Write normalised records of one layout as a box set."""
    group = file["sets"].create_group(name)
    sums = [checksum(record) for record in records]
    write_index(group, [r.id for r in records], [r.size for r in records], [len(r) for r in records], sums)
    for field in records[0].arrays():
        group.create_dataset(field, data=np.concatenate([record.arrays()[field] for record in records]))
    write_provenance(group, provenance)


def write_index(
    group: h5py.Group, ids: Sequence[str], sizes: ArrayLike, counts: Sequence[int], sums: ArrayLike
) -> None:
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
    sources: Sequence[SetFile],
    provenance: dict[str, Any],
    *,
    order: Sequence[str] | None = None,
    compression: str | None = None,
    dtype: str = "float16",
    tick: Callable[[int], None] | None = None,
) -> None:
    """Copy the images of other box sets, each once, into one new set.

    Args:
        order: ids, first to last; images that it lacks follow in the order of the sources.
        compression: an h5py filter; None for contiguous data sets.
        dtype: float type without any source.
        tick: called with the number of images copied since the last call.
    """
    group = file["sets"].create_group(name)
    images: dict[str, tuple[SetFile, int]] = {}
    for source in sources:
        for number, image in enumerate(source.ids):
            images.setdefault(image, (source, number))
    ids = list(dict.fromkeys([*(image for image in order or () if image in images), *images]))
    picked = [images[image] for image in ids]
    counts = [int(part.offsets[i + 1] - part.offsets[i]) for part, i in picked]
    write_index(group, ids, [p.sizes[i] for p, i in picked], counts, [p.checksums[i] for p, i in picked])
    widths = sources[0].widths if sources else {"features": 0, "boxes": 4}
    data = {
        field: _create(group, field, (sum(counts), width), stored_dtype(field, sources, dtype), compression)
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


def stored_dtype(field: str, sources: Sequence[SetFile], dtype: str = "float16") -> np.dtype[Any]:
    """Return the type of a field that holds the rows of ``sources``; the float type is ``dtype`` without sources."""
    if FIELDS[field].dtype == "S":
        return np.dtype(f"S{max([1, *(source.dtypes[field].itemsize for source in sources)])}")
    return np.dtype(FIELDS[field].dtype or (sources[0].dtypes[field] if sources else dtype))


def _create(
    group: h5py.Group, field: str, shape: tuple[int, int], dtype: np.dtype[Any], compression: str | None
) -> h5py.Dataset:
    full = shape[:1] if FIELDS[field].width == 0 else shape
    if compression is None or 0 in full:
        return group.create_dataset(field, full, dtype)
    width = max(1, int(np.prod(full[1:])) * dtype.itemsize)
    rows = min(full[0], max(1, (256 << 10) // width))  # about an image's worth per chunk, for random reads
    return group.create_dataset(field, full, dtype, chunks=(rows, *full[1:]), compression=compression, shuffle=True)


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
