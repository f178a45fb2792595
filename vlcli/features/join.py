"""Joins shards into one store by an index file of HDF5's virtual data sets.

Any HDF5 reader sees one file. :class:`~vlcli.features.FeatureStore` opens the shards that the index names and maps
each, because a read through a virtual data set takes twice as long.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from vlcli.errors import DataError
from vlcli.features.assemble import create_file, write_index, write_provenance
from vlcli.features.file import SHARDS, SetFile
from vlcli.features.merge import check_same, set_holders
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import FIELDS, encode_strings, join_provenance
from vlcli.features.writer import written_whole


def join(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Write the index file ``out`` for shards of one store, or folders of shards, and return it.

    Each image may be in one shard only, and all shards must be in the folder of the index.

    Raises:
        DataError: a shard is missing, damaged, outside the index's folder, or does not fit the others.
        VlcliError: the disk is full.
    """
    out = Path(out)
    shards = FeatureStore(list(paths)).paths
    names = [_inside(shard, out) for shard in shards]
    holders = set_holders(shards)
    for name, held in holders.items():
        if len(held) != len(shards):
            lacking = next(shard for shard in shards if shard not in held)
            hint = "put different box sets into one file: vlcli features merge"
            raise DataError(f"a shard lacks the box set {name!r}", where=str(lacking), hint=hint)
    with written_whole(out) as draft, create_file(draft) as file:
        file[SHARDS] = encode_strings(names)
        for name in holders:
            parts = FeatureStore(shards, name).parts()
            check_same(name, parts)
            _write_set(file["sets"].create_group(name), parts, names)
    return out


def _inside(shard: Path, index: Path) -> str:
    relative = os.path.relpath(shard.resolve(), index.resolve().parent)
    if Path(relative).parts[0] == os.pardir:
        raise DataError(
            "a shard lies outside the folder of its index",
            where=str(shard),
            expected=f"a file under {index.resolve().parent}",
            hint="write the index into a folder above all shards",
        )
    return Path(relative).as_posix()


def _write_set(group: h5py.Group, parts: list[SetFile], names: list[str]) -> None:
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    sizes = np.concatenate([part.sizes for part in parts])
    sums = np.concatenate([part.checksums for part in parts])
    write_index(group, [name for part in parts for name in part.ids], sizes, counts.tolist(), sums)
    for field, shape in parts[0].shapes.items():
        width = max(part.dtypes[field].itemsize for part in parts)
        dtype = np.dtype(f"S{width}") if FIELDS[field].dtype == "S" else parts[0].dtypes[field]
        layout = h5py.VirtualLayout((int(counts.sum()), *shape[1:]), dtype)
        start = 0
        for part, name in zip(parts, names, strict=True):
            rows = part.shapes[field][0]
            if rows:
                source = h5py.VirtualSource(
                    name, f"sets/{part.name}/{field}", part.shapes[field], dtype=part.dtypes[field]
                )
                layout[start : start + rows] = source
            start += rows
        group.create_virtual_dataset(field, layout)
    write_provenance(group, join_provenance([part.provenance for part in parts]))
