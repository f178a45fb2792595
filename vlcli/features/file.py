"""One HDF5 file of the store, opened for reading: its metadata once, its rows by memory map.

HDF5 keeps an uncompressed, contiguous data set as one run of bytes. Mapping the file at that place
reads rows as fast as a raw numpy memory map; compressed data sets go through h5py.
"""

from __future__ import annotations

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
from vlcli.features.structure import (
    damaged,
    datasets_of,
    index_problems,
    sets_of,
    shape_problems,
    unbounded_box,
    unlike_length,
)

_SMALL = 1 << 14
"""Bytes of a picture's field up to which one gather for all pictures is faster than a copy for each."""
SHARDS = "shards"
"""Data set of an index file: paths of the shards from its folder."""


def open_hdf5(path: Path) -> h5py.File:
    """Open a store's file for reading, or say why that cannot be done.

    Raises:
        DataError: missing, truncated, not HDF5, or HDF5 of another kind or of a newer schema.
    """
    if not path.is_file():
        raise DataError("the feature store does not exist", where=str(path), hint="make it with: vlcli extract")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        what = "is truncated" if "truncated" in str(error) else "is not a readable HDF5 file"
        hint = "delete it and run the extraction again"
        raise DataError(f"the feature store {what}", where=str(path), got=str(error), hint=hint) from None
    try:
        length_problem = unlike_length(path)
        if length_problem:
            raise damaged(path, length_problem)
        _check_kind(file, path)
        sets_of(file, path)
    except (DataError, KeyError, OSError, RuntimeError, ValueError, TypeError) as error:
        file.close()
        raise error if isinstance(error, DataError) else damaged(path, str(error)) from None
    return file


def _check_kind(file: h5py.File, path: Path) -> None:
    found = (_text(file.attrs.get("format")), _number(file.attrs.get("schema", 0)))
    if found[0] != FORMAT or not 0 <= found[1] <= SCHEMA_VERSION:
        raise DataError(
            "this HDF5 file is not a feature store that this version reads",
            where=str(path),
            got=f"format {found[0]!r}, schema {found[1]}",
            expected=f"format {FORMAT!r}, schema up to {SCHEMA_VERSION}",
        )


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | np.integer) else -1


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


def pick_set(file: h5py.File, name: str | None, path: Path) -> str:
    """The box set asked for; by default the only one (concepts do not count), else the one called ``boxes``.

    Raises:
        DataError: there is no such set.
    """
    there = list(file["sets"])
    regions = [one for one in there if one != CONCEPT_SET] or there
    wanted = name or (regions[0] if len(regions) == 1 else DEFAULT_SET)
    if wanted not in there:
        raise DataError(
            "the feature store has no such box set",
            where=str(path),
            got=repr(name) if name else "no name",
            expected=f"one of: {', '.join(there)}",
        )
    return wanted


def shards_of(path: Path) -> list[Path]:
    """The files that an index joins; the file itself where it is none.

    Raises:
        DataError: a shard has gone, or the index names one outside its folder.
    """
    with open_hdf5(path) as file:
        names = decode_strings(file[SHARDS][()]) if SHARDS in file else []
    folder = path.resolve().parent
    shards = [folder / name for name in names]
    for shard in shards:
        if not shard.resolve().is_relative_to(folder) or not shard.is_file():
            hint = "put it back, or join the shards anew: vlcli features join"
            raise DataError("a shard of the feature store is missing", where=str(path), got=str(shard), hint=hint)
    return shards or [path]


class SetFile:
    """One box set of one file: ids, sizes and offsets in memory, rows mapped.

    Args:
        path: the HDF5 file.
        name: the box set; None for the only one.
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
                self.name = pick_set(file, name, path)
                group = file["sets"][self.name]
                self._read_index(group, datasets_of(group, path, index=index))
                if not index:
                    self._check_boxes(group["boxes"])
            except (KeyError, OSError, ValueError, TypeError, RuntimeError, MemoryError) as error:
                raise damaged(path, str(error) or type(error).__name__) from None
        self._sound = bytearray(len(self.ids))

    def _read_index(self, group: h5py.Group, data: dict[str, h5py.Dataset]) -> None:
        self.ids = decode_strings(data["ids"][()])
        self.sizes = data["sizes"][()]  # (n, 2)
        self.offsets = data["offsets"][()]  # (n + 1,)
        self.checksums = data["checksums"][()]  # (n,)
        self.provenance: dict[str, Any] = json.loads(_text(data["provenance"][()]))
        if not isinstance(self.provenance, dict):
            raise ValueError("the provenance is no JSON object")
        self.attributes = {key: _plain(value) for key, value in group.attrs.items()}
        self.shapes = {name: data[name].shape for name in FIELDS if name in data}
        self.dtypes = {name: data[name].dtype for name in self.shapes}
        problems = index_problems(self.ids, self.sizes, self.offsets, self.checksums)
        problems = problems or shape_problems(self.shapes, int(self.offsets[-1]))
        if problems:
            raise ValueError("; ".join(problems))
        self.rows = self._map({name: data[name] for name in self.shapes})

    def _check_boxes(self, stored: h5py.Dataset) -> None:
        mapped = self.rows["boxes"]
        bad = unbounded_box(stored if mapped is None else mapped)
        if bad is not None:
            image = self.ids[int(np.searchsorted(self.offsets, bad, side="right")) - 1]
            raise ValueError(f"a box of image {image!r} is not finite: {stored[bad].tolist()}")

    def _map(self, sets: dict[str, h5py.Dataset]) -> dict[str, np.ndarray | None]:
        places = {name: data.id.get_offset() for name, data in sets.items() if data.chunks is None}
        handle = os.open(self.path, os.O_RDONLY)
        try:
            # The map outlives the descriptor, and a finished store is only ever replaced, never rewritten.
            self._bytes = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(handle)
        rows: dict[str, np.ndarray | None] = {}
        for name, data in sets.items():
            if data.size == 0:
                rows[name] = np.empty(data.shape, data.dtype)
            elif places.get(name) is not None:
                flat = np.frombuffer(self._bytes, data.dtype, data.size, places[name])
                rows[name] = flat.reshape(data.shape)
            else:
                rows[name] = None
        return rows

    def __len__(self) -> int:
        return len(self.ids)

    def block(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows ``start:stop`` of a field; a read-only view where the file is mapped."""
        mapped = self.rows[name]
        if mapped is not None:
            return mapped[start:stop]
        try:
            made: np.ndarray = self._group()[name][start:stop]
            return made
        except (OSError, RuntimeError) as error:
            raise damaged(self.path, str(error)) from None

    def check(self, images: list[int]) -> None:
        """Compare records with their checksums; each once in the life of this object.

        Args:
            images: places in ``ids``.

        Raises:
            DataError: a record is not what was written.
        """
        for image in images:
            if not self._sound[image]:
                if checksum(self.record(image, copy=False)) != int(self.checksums[image]):
                    raise self._altered(self.ids[image])
                self._sound[image] = 1

    def _altered(self, name: str) -> DataError:
        return DataError(
            "the feature store is damaged: a record does not match its checksum",
            where=str(self.path),
            got=f"image {name!r}",
            expected="the bytes that the extraction wrote",
            hint=f"list all such records: vlcli features verify {self.path}; then delete the file and extract again",
        )

    def fill(self, name: str, out: np.ndarray, into: list[int], starts: list[int], counts: list[int]) -> None:
        """Copy a field of several images into rows of a padded batch; the rest of each row becomes 0.

        Args:
            name: the field.
            out: the batch (B, R, ...).
            into: rows of it.
            starts: first row of each image in the file.
            counts: rows of each image, at most R.
        """
        width = out.shape[1]
        mapped = self.rows[name]
        if mapped is not None and 0 < width * mapped[:1].nbytes <= _SMALL and len(mapped):
            wanted = np.arange(width)
            places = np.minimum(np.array(starts)[:, None] + wanted, len(mapped) - 1)  # (B, R)
            found = mapped[places]
            found[wanted >= np.array(counts)[:, None]] = 0
            out[into] = found
            return
        for row, start, count in zip(into, starts, counts, strict=True):
            rows = self.block(name, start, start + count) if mapped is None else mapped[start : start + count]
            if count == width:
                out[row] = rows
            else:
                out[row, :count] = rows
                out[row, count:] = 0

    def _group(self) -> h5py.Group:
        # An HDF5 handle must not cross a fork: each process opens its own.
        if self._h5 is None or self._pid != os.getpid():
            self._h5, self._pid = open_hdf5(self.path), os.getpid()
        return self._h5["sets"][self.name]

    def record(self, index: int, names: tuple[str, ...] | None = None, copy: bool = True) -> Record:
        """The record of image number ``index``.

        Args:
            index: place in ``ids``.
            names: fields to read besides ``features`` and ``boxes``; None for all there are.
            copy: own memory instead of views on the file.
        """
        start, stop = int(self.offsets[index]), int(self.offsets[index + 1])
        wanted = self.shapes if names is None else [n for n in self.shapes if n in names or n in ("features", "boxes")]
        arrays: dict[str, Any] = {}
        for name in wanted:
            block = self.block(name, start, stop)
            arrays[name] = block.copy() if copy and not block.flags.writeable else block
        height, width = self.sizes[index].tolist()
        return Record(id=self.ids[index], size=(height, width), **arrays)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if isinstance(value, np.generic) else value
