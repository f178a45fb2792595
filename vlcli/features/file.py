"""Reads one HDF5 file of a store: its index into memory, its rows by memory map.

HDF5 keeps an uncompressed, contiguous data set as one run of bytes, which numpy maps; compressed ones go through h5py.
"""

import json
import mmap
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from vlcli.errors import DataError
from vlcli.features.schema import (
    CONCEPT_SET,
    DEFAULT_SET,
    FIELDS,
    FORMAT,
    SCHEMA_VERSION,
    Record,
    checksum,
    decode_strings,
)
from vlcli.features.structure import check_sets, damaged, datasets_of, index_problems, shape_problems, unlike_length

# Bytes of an image's field up to which one gather for all images is faster than a copy for each.
_SMALL = 1 << 14
# Boxes that are read at a time to check them.
_ROWS = 1 << 20
# Data set of an index file: paths of the shards from its folder.
SHARDS = "shards"


def open_hdf5(path: Path) -> h5py.File:
    """Open a store's file for reading."""
    if not path.is_file():
        raise DataError("the feature store does not exist", where=str(path), hint="make it with: vlcli extract")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        what = "is truncated" if "truncated" in str(error) else "is not a readable HDF5 file"
        hint = "delete it and run the extraction again"
        raise DataError(f"the feature store {what}", where=str(path), got=str(error), hint=hint) from None
    try:
        if problem := unlike_length(path):
            raise damaged(path, problem)
        kind, schema = _text(file.attrs.get("format")), file.attrs.get("schema", 0)
        schema = int(schema) if isinstance(schema, int | np.integer) else -1
        if kind != FORMAT or not 0 <= schema <= SCHEMA_VERSION:
            what = "this HDF5 file is not a feature store that this version reads"
            got = f"format {kind!r}, schema {schema}"
            expected = f"format {FORMAT!r}, schema up to {SCHEMA_VERSION}"
            raise DataError(what, where=str(path), got=got, expected=expected)
        check_sets(file, path)
    except (DataError, KeyError, OSError, RuntimeError, ValueError, TypeError) as error:
        file.close()
        raise error if isinstance(error, DataError) else damaged(path, str(error)) from None
    return file


def set_names(path: Path) -> list[str]:
    """Return the names of a file's box sets."""
    with open_hdf5(path) as file:
        return list(file["sets"])


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def shards_of(path: Path) -> list[Path]:
    """Return the files that an index joins, else the file itself; DataError: a shard is gone or outside the folder."""
    with open_hdf5(path) as file:
        names = decode_strings(file[SHARDS][()]) if SHARDS in file else []
    folder = path.resolve().parent
    shards = [folder / name for name in names] or [path]
    for shard in shards:
        if not shard.resolve().is_relative_to(folder) or not shard.is_file():
            hint = "put it back, or join the shards anew: vlcli features join"
            raise DataError("a shard of the feature store is missing", where=str(path), got=str(shard), hint=hint)
    return shards


class SetFile:
    """One box set of one file: ids, sizes and offsets in memory, rows mapped.

    Args:
        name: the box set; None: the only one (concepts do not count), else ``boxes``.
        index: whether the file is an index of shards, whose rows are virtual.

    Raises:
        DataError: the file is missing, or its structure is not a store's.
    """

    def __init__(self, path: Path, name: str | None = None, *, index: bool = False) -> None:
        self.path = path
        self._h5: h5py.File | None = None
        self._pid = -1
        with open_hdf5(path) as file:
            try:
                there = list(file["sets"])
                regions = [one for one in there if one != CONCEPT_SET] or there
                self.name = name or (regions[0] if len(regions) == 1 else DEFAULT_SET)
                if self.name not in there:
                    what, got = "the feature store has no such box set", repr(name) if name else "no name"
                    raise DataError(what, where=str(path), got=got, expected=f"one of: {', '.join(there)}")
                data = datasets_of(file["sets"][self.name], path, index=index)
                self._read_index(data)
                if not index:
                    self._check_boxes(data["boxes"])
            except (KeyError, OSError, ValueError, TypeError, AttributeError, RuntimeError, MemoryError) as error:
                raise damaged(path, str(error) or type(error).__name__) from None
        self._sound = bytearray(len(self.ids))

    def _read_index(self, data: dict[str, h5py.Dataset]) -> None:
        self.ids = decode_strings(data["ids"][()])
        self.sizes = data["sizes"][()]  # (n, 2)
        self.offsets = data["offsets"][()]  # (n + 1,)
        self.checksums = data["checksums"][()]  # (n,)
        self.provenance: dict[str, Any] = json.loads(_text(data["provenance"][()]))
        if not isinstance(self.provenance, dict):
            raise ValueError("the provenance is no JSON object")
        self.shapes = {name: data[name].shape for name in FIELDS if name in data}
        self.dtypes = {name: data[name].dtype for name in self.shapes}
        problems = index_problems(self.ids, self.sizes, self.offsets, self.checksums)
        if problems := problems or shape_problems(self.shapes, int(self.offsets[-1])):
            raise ValueError("; ".join(problems))
        self.rows = self._map({name: data[name] for name in self.shapes})

    @property
    def widths(self) -> dict[str, int]:
        return {name: shape[1] if len(shape) > 1 else 0 for name, shape in self.shapes.items()}

    def _check_boxes(self, stored: h5py.Dataset) -> None:
        boxes = stored if self.rows["boxes"] is None else self.rows["boxes"]
        for start in range(0, len(boxes), _ROWS):
            for bad in np.flatnonzero(~np.isfinite(boxes[start : start + _ROWS]).all(axis=1)) + start:
                image = self.ids[int(np.searchsorted(self.offsets, bad, side="right")) - 1]
                raise ValueError(f"a box of image {image!r} is not finite: {stored[bad].tolist()}")

    def _map(self, sets: dict[str, h5py.Dataset]) -> dict[str, np.ndarray | None]:
        """Return each field as an array over the mapped file, or None where it must be read through h5py."""
        with self.path.open("rb") as file:
            # The map outlives the descriptor, and a finished store is only ever replaced, never rewritten.
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        rows: dict[str, np.ndarray | None] = {}
        for name, data in sets.items():
            offset = data.id.get_offset() if data.chunks is None else None
            if data.size == 0:
                rows[name] = np.empty(data.shape, data.dtype)
            elif offset is not None:
                rows[name] = np.frombuffer(self._bytes, data.dtype, data.size, offset).reshape(data.shape)
            else:
                rows[name] = None
        return rows

    def __len__(self) -> int:
        return len(self.ids)

    def block(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return rows ``start:stop`` of a field; a read-only view where the file is mapped."""
        mapped = self.rows[name]
        if mapped is not None:
            return mapped[start:stop]
        try:
            # An HDF5 handle must not cross a fork: each process opens its own.
            if self._h5 is None or self._pid != os.getpid():
                self._h5, self._pid = open_hdf5(self.path), os.getpid()
            rows: np.ndarray = self._h5["sets"][self.name][name][start:stop]
            return rows
        except (OSError, RuntimeError) as error:
            raise damaged(self.path, str(error)) from None

    def check(self, images: list[int]) -> None:
        """Compare records with their checksums, each once in the life of this object; DataError: one differs."""
        for image in images:
            if self._sound[image]:
                continue
            if checksum(self.record(image, copy=False)) != int(self.checksums[image]):
                verify = f"list all such records: vlcli features verify {self.path}"
                what, where = "the feature store is damaged: a record does not match its checksum", str(self.path)
                got, hint = f"image {self.ids[image]!r}", f"{verify}; then delete the file and extract again"
                raise DataError(what, where=where, got=got, expected="the bytes that the extraction wrote", hint=hint)
            self._sound[image] = 1

    def fill(self, name: str, out: np.ndarray, into: list[int], starts: list[int], counts: list[int]) -> None:
        """Copy a field of several images into a padded batch; padding becomes 0.

        Args:
            out: the batch (B, R, ...).
            into: row of each image in the batch.
            starts: first row of each image in the file.
            counts: rows of each image, at most R.
        """
        width = out.shape[1]
        mapped = self.rows[name]
        if mapped is not None and 0 < width * mapped[:1].nbytes <= _SMALL and len(mapped):
            columns = np.arange(width)
            rows = mapped[np.minimum(np.array(starts)[:, None] + columns, len(mapped) - 1)]  # (B, R, ...)
            rows[columns >= np.array(counts)[:, None]] = 0
            out[into] = rows
            return
        for row, start, count in zip(into, starts, counts, strict=True):
            rows = self.block(name, start, start + count) if mapped is None else mapped[start : start + count]
            out[row, :count] = rows
            out[row, count:] = 0

    def record(self, index: int, names: tuple[str, ...] | None = None, copy: bool = True) -> Record:
        """Return the record of an image by its number; ``names``: fields besides features and boxes, None for all."""
        start, stop = int(self.offsets[index]), int(self.offsets[index + 1])
        arrays: dict[str, Any] = {}
        for name in self.shapes:
            if names is None or name in names or name in ("features", "boxes"):
                block = self.block(name, start, stop)
                arrays[name] = block.copy() if copy and not block.flags.writeable else block
        return Record(id=self.ids[index], size=tuple(self.sizes[index].tolist()), **arrays)
