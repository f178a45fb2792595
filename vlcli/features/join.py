"""Joins shards into one store by an index file of HDF5's virtual data sets, or merges them into one file.

Any HDF5 reader sees one file. :class:`~vlcli.features.FeatureStore` opens the shards that the index names and maps
each, because a read through a virtual data set takes twice as long.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from vlcli.errors import DataError
from vlcli.features.assemble import create_file, stored_dtype, write_index, write_provenance, write_sources
from vlcli.features.file import SHARDS, SetFile
from vlcli.features.inspect import set_holders
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import encode_strings, join_provenance, same_extraction
from vlcli.features.writer import check_words, written_whole
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
        order: image ids, first to last; others follow.
        compression: ``gzip``, ``lzf`` or None.

    Raises:
        DataError: a shard is missing or damaged, shards overlap, or they were made differently.
        VlcliError: the disk is full.
    """
    out = Path(out)
    with written_whole(out) as draft, create_file(draft) as file:
        for name, holders in _named_holders(paths, names or {}).items():
            check_words(name, compression)
            if len({old for _, old in holders}) > 1:
                got = ", ".join(f"{old} of {path}" for path, old in holders)
                what, hint = f"different box sets would become one, {name!r}", "give each its own name: NAME=FILE"
                raise DataError(what, got=got, hint=hint)
            parts, provenance = _parts(name, [path for path, _ in holders], holders[0][1])
            with (progress or Silent()).task(f"merging {name}", sum(map(len, parts)), "image") as task:
                write_sources(file, name, parts, provenance, order=order, compression=compression, tick=task.advance)
    return out


def _named_holders(paths: Sequence[str | Path], names: Mapping[str | Path, str]) -> Holders:
    named: Holders = defaultdict(list)
    for path in paths:
        held = set_holders(FeatureStore(path).paths)
        if path in names and len(held) != 1:
            what = "only a store with one box set can be renamed"
            raise DataError(what, where=str(path), got=", ".join(held), expected="one set")
        for name, holders in held.items():
            named[names.get(path) or name] += [(file, name) for file in holders]
    if not named:
        raise DataError("there is nothing to merge", expected="one feature store or more")
    return named


def _parts(name: str, files: list[Path], stored_name: str) -> tuple[list[SetFile], dict[str, Any]]:
    """Return a box set of every file, and their provenance; raise DataError where different extractions made them."""
    parts = FeatureStore(files, stored_name).parts()
    for part in parts[1:]:
        if not same_extraction(part.provenance, parts[0].provenance):
            what = f"the shards' box sets {name!r} were made by different extractions"
            hint = "compare them with: vlcli features info; keep both under their own names: NAME=FILE"
            raise DataError(what, where=f"{parts[0].path}, {part.path}", hint=hint)
    return parts, join_provenance([part.provenance for part in parts])


def join(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Write the index file ``out`` for shards of one store, or folders of shards, and return it.

    Each image may be in one shard only, and all shards must be in the folder of the index.

    Raises:
        DataError: a shard is missing, damaged, outside the index's folder, or does not fit the others.
        VlcliError: the disk is full.
    """
    out = Path(out)
    shards = FeatureStore(list(paths)).paths
    folder, names = out.resolve().parent, dict[Path, str]()
    for shard in shards:
        if shard.resolve() == out.resolve():
            raise DataError("the index would replace a shard", where=str(shard), hint="choose another name: --out FILE")
        if not shard.resolve().is_relative_to(folder):
            what = "a shard lies outside the folder of its index"
            hint = "write the index into a folder above all shards"
            raise DataError(what, where=str(shard), expected=f"a file under {folder}", hint=hint)
        names[shard] = shard.resolve().relative_to(folder).as_posix()
    holders = set_holders(shards)
    for name, held in holders.items():
        if len(held) != len(shards):
            lacking = next(shard for shard in shards if shard not in held)
            hint = "put different box sets into one file: vlcli features merge"
            raise DataError(f"a shard lacks the box set {name!r}", where=str(lacking), hint=hint)
    with written_whole(out) as draft, create_file(draft) as file:
        file[SHARDS] = encode_strings(names.values())
        for name in holders:
            parts, provenance = _parts(name, shards, name)
            group = file["sets"].create_group(name)
            _write_set(group, parts, names)
            write_provenance(group, provenance)
    return out


def _write_set(group: h5py.Group, parts: list[SetFile], names: Mapping[Path, str]) -> None:
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    sizes = np.concatenate([part.sizes for part in parts])
    sums = np.concatenate([part.checksums for part in parts])
    write_index(group, [name for part in parts for name in part.ids], sizes, counts.tolist(), sums)
    for field, (_, *columns) in parts[0].shapes.items():
        layout = h5py.VirtualLayout((int(counts.sum()), *columns), stored_dtype(field, parts))
        start = 0
        for part in parts:
            shape, dtype = part.shapes[field], part.dtypes[field]
            if shape[0]:
                source = h5py.VirtualSource(names[part.path], f"sets/{part.name}/{field}", shape, dtype=dtype)
                layout[start : start + shape[0]] = source
            start += shape[0]
        group.create_virtual_dataset(field, layout)
