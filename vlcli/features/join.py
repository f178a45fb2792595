"""Joins shards into one store by an index file of HDF5's virtual data sets, or merges them into one file.

Any HDF5 reader sees one file. :class:`~vlcli.features.FeatureStore` opens the shards that the index names and maps
each, because a read through a virtual data set takes twice as long.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np

from vlcli.errors import DataError
from vlcli.features.assemble import StoredPart, create_file, write_index, write_provenance, write_sources
from vlcli.features.file import SHARDS, SetFile, open_hdf5
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import FIELDS, encode_strings, join_provenance, same_extraction
from vlcli.features.writer import written_whole
from vlcli.progress import Progress, Silent

# For each new box set, its files, and the set's name in each.
Holders = dict[str, list[tuple[Path, str]]]


def merge(
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    names: Mapping[str | Path, str] | None = None,
    order: Sequence[str] | None = None,
    compression: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Copy every box set of several stores into one file, and return it.

    Args:
        paths: the shards, folders of them, or stores with different box sets; an image may be in a box set once.
        out: the new file; appears only when it is whole.
        names: new name of a store's only box set, by its path: two stores whose sets are called alike become two sets
            of one file.
        order: image ids in the order wanted; others follow.
        compression: ``gzip``, ``lzf`` or None.
        progress: of the images.

    Raises:
        DataError: a shard is missing or damaged, shards overlap, or they were made differently.
        VlcliError: the disk is full.
    """
    out = Path(out)
    with written_whole(out) as draft, create_file(draft) as file:
        for name, holders in _named_holders(paths, names or {}).items():
            parts = _parts(name, holders)
            check_same(name, parts)
            provenance = join_provenance([part.provenance for part in parts])
            with (progress or Silent()).task(f"merging {name}", sum(map(len, parts)), "image") as task:
                sources = [StoredPart(part) for part in parts]
                write_sources(file, name, sources, provenance, order=order, compression=compression, tick=task.advance)
    return out


def _named_holders(paths: Sequence[str | Path], names: Mapping[str | Path, str]) -> Holders:
    named: Holders = {}
    for path in paths:
        new = names.get(path)
        held = set_holders(FeatureStore(path).paths)
        if new is not None and len(held) != 1:
            raise DataError(
                "only a store with one box set can be renamed", where=str(path), got=", ".join(held), expected="one set"
            )
        for name, holders in held.items():
            named.setdefault(new or name, []).extend((file, name) for file in holders)
    if not named:
        raise DataError("there is nothing to merge", expected="one feature store or more")
    return named


def set_holders(files: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the files that hold each box set."""
    names: dict[str, list[Path]] = {}
    for path in files:
        with open_hdf5(path) as opened:
            for name in opened["sets"]:
                names.setdefault(name, []).append(path)
    return names


def _parts(name: str, holders: list[tuple[Path, str]]) -> list[SetFile]:
    if len({old for _, old in holders}) == 1:
        return FeatureStore([path for path, _ in holders], holders[0][1]).parts()
    raise DataError(
        f"different box sets would become one, {name!r}",
        got=", ".join(f"{old} of {path}" for path, old in holders),
        hint="give each its own name: NAME=FILE",
    )


def check_same(name: str, parts: Sequence[SetFile]) -> None:
    """Refuse shards that different extractions made. Raises DataError: they differ."""
    for part in parts[1:]:
        if not same_extraction(part.provenance, parts[0].provenance):
            raise DataError(
                f"the shards' box sets {name!r} were made by different extractions",
                where=f"{parts[0].path}, {part.path}",
                hint="compare them with: vlcli features info; keep both under their own names: NAME=FILE",
            )


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
