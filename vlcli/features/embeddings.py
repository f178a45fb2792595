"""Vectors by name on disk: one a sentence or picture, mapped for search, made again where their maker has changed.

A store is one HDF5 file::

    /          attributes: format, schema, vlcli, key (JSON: what the vectors depend on)
    ids        (n,)    fixed-length UTF-8
    marks      (n,)    fixed-length UTF-8: what a vector was made from, e.g. a picture's size and time; may be empty
    vectors    (n, D)  float32 or float16, contiguous, so that a reader maps it

Like a feature store (:mod:`vlcli.features.writer`), an unfinished one is a folder ``NAME.part`` of small complete
files, so that a kill loses only the last seconds and several processes may fill it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Literal

import h5py
import numpy as np
from numpy.typing import NDArray

from vlcli.errors import DataError
from vlcli.features.schema import decode_strings, encode_strings
from vlcli.features.writer import written_whole
from vlcli.version import __version__

FORMAT, SCHEMA = "vlcli-embeddings", 1
BLOCK = 1 << 14
"""Rows copied at a time."""
AGAIN = "delete it and run the same command again"


class EmbeddingStore:
    """Vectors by name, of one file or of one unfinished part.

    Args:
        path: the file.
        key: what the vectors must depend on; None: whatever they do.

    Raises:
        DataError: it is missing, no store, damaged, or made by something else than ``key``.
    """

    def __init__(self, path: str | Path, key: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        with _opened(self.path) as file:
            try:
                self.key: dict[str, Any] = json.loads(file.attrs["key"])
                self.ids, self.marks = (decode_strings(file[name][()]) for name in ("ids", "marks"))
                self.vectors = _mapped(self.path, file["vectors"])
            except (KeyError, OSError, ValueError, TypeError) as error:
                raise _damaged(self.path, error) from None
        if len({len(self.ids), len(self.marks), len(self.vectors)}) > 1:
            raise _damaged(self.path, f"{len(self.ids)} names, {len(self.vectors)} vectors")
        if key is not None and self.key != _plain(key):
            raise _stale(self.path, self.key, _plain(key))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dim(self) -> int:
        """Width D."""
        return int(self.vectors.shape[1])

    def rows(self) -> dict[str, int]:
        """The row of every name."""
        return {name: row for row, name in enumerate(self.ids)}


class EmbeddingWriter:
    """Fill a store; killed and started again it goes on, and what is there already need not be made again.

    Args:
        path: the finished file.
        key: what the vectors depend on: the weights above all.
        stale: what to do where a store or a part of one depends on something else: ``refuse`` it, or ``replace`` it.
        dtype: float type on disk.
        flush_every: most vectors held in memory.
        flush_seconds: longest time between parts.
        rank: number of this process among those that write together; only 0 clears up and finishes.

    Raises:
        DataError: what is there depends on something else, and ``stale`` is ``refuse``.
    """

    def __init__(
        self,
        path: str | Path,
        key: Mapping[str, Any],
        *,
        stale: Literal["refuse", "replace"] = "refuse",
        dtype: str = "float32",
        flush_every: int = 1 << 14,
        flush_seconds: float = 30.0,
        rank: int = 0,
    ) -> None:
        if dtype not in ("float16", "float32"):
            raise DataError("unknown type of vectors", got=dtype, expected="float16 or float32")
        self.path, self.key, self.dtype, self.rank = Path(path), _plain(key), dtype, rank
        self.part = self.path.with_name(self.path.name + ".part")
        self._limits = flush_every, flush_seconds
        self.replaced = False
        self._sources = self._usable(stale)
        self.marks = dict(pair for source in self._sources for pair in zip(source.ids, source.marks, strict=True))
        """What each vector that is there was made from, by name."""
        self._waiting: list[tuple[list[str], list[str], NDArray[Any]]] = []
        self._count, self._since = 0, monotonic()
        numbers = [int(file.stem.split("-")[-1]) for file in self.part.glob("*.h5")]
        self._number = max(numbers, default=-1) + 1

    def _usable(self, stale: str) -> list[EmbeddingStore]:
        files = [*([self.path] if self.path.exists() else []), *_parts(self.part)]
        usable = []
        for file in files:
            try:
                usable.append(EmbeddingStore(file, self.key))
            except DataError:
                if stale == "refuse":
                    raise
                self.replaced = True
                if file != self.path and self.rank == 0:
                    file.unlink(missing_ok=True)
        return usable

    def __contains__(self, name: object) -> bool:
        return name in self.marks

    def lacks(self, names: Mapping[str, str]) -> list[str]:
        """Those of ``names`` (and their marks) that have no vector, or one made from something else."""
        return [name for name, mark in names.items() if self.marks.get(name) != mark]

    def append(self, ids: Sequence[str], vectors: NDArray[Any], marks: Sequence[str] | None = None) -> None:
        """Add vectors (n, D); one of a name that is there replaces it.

        Raises:
            DataError: they are not finite, or not as wide as the others.
            VlcliError: the disk is full.
        """
        rows = np.ascontiguousarray(vectors, dtype=self.dtype)
        marks = list(marks) if marks is not None else [""] * len(ids)
        self._check(ids, rows)
        self._waiting.append((list(ids), marks, rows))
        self.marks.update(zip(ids, marks, strict=True))
        self._count += len(ids)
        if self._count >= self._limits[0] or monotonic() - self._since > self._limits[1]:
            self.flush()

    def _check(self, ids: Sequence[str], rows: NDArray[Any]) -> None:
        known = [source.dim for source in self._sources if len(source)] + [part.shape[1] for *_, part in self._waiting]
        if rows.ndim != 2 or len(rows) != len(ids) or any(width != rows.shape[1] for width in known[:1]):
            got, expected = str(rows.shape), f"({len(ids)}, {known[0] if known else 'D'})"
            raise DataError("these vectors do not fit the store", where=str(self.path), got=got, expected=expected)
        if not np.isfinite(rows).all():
            bad = ids[int(np.argmin(np.isfinite(rows).all(axis=1)))]
            raise DataError("a vector is not finite", where=str(self.path), got=repr(bad))

    def flush(self) -> None:
        """Put what is held in memory on disk.

        Raises:
            VlcliError: the disk is full.
        """
        if self._waiting:
            ids = [name for names, _, _ in self._waiting for name in names]
            marks = [mark for _, found, _ in self._waiting for mark in found]
            vectors = np.concatenate([rows for *_, rows in self._waiting])
            path = self.part / f"{self.rank:04d}-{self._number:08d}.h5"
            with written_whole(path) as draft, _created(draft, self.key) as file:
                _write(file, ids, marks, len(ids), vectors.shape[1], self.dtype, iter([vectors]))
            self._waiting, self._count, self._number = [], 0, self._number + 1
        self._since = monotonic()

    def finish(self, order: Sequence[str]) -> EmbeddingStore:
        """Join everything into the finished file: the vectors of ``order``, in that order; others are dropped.

        Raises:
            DataError: a vector of ``order`` is missing.
            VlcliError: the disk is full; the parts stay.
        """
        self.flush()
        self._sources = self._usable("refuse" if not self.replaced else "replace")
        if len(self._sources) == 1 and self._sources[0].path == self.path and self._sources[0].ids == list(order):
            shutil.rmtree(self.part, ignore_errors=True)
            return self._sources[0]
        places: dict[str, tuple[int, int]] = {}
        for number, source in enumerate(self._sources):
            places.update((name, (number, row)) for row, name in enumerate(source.ids))
        if missing := [name for name in order if name not in places]:
            raise DataError("vectors are missing", where=str(self.path), got=", ".join(missing[:3]))
        picked = np.array([places[name] for name in order], dtype=np.int64).reshape(-1, 2)  # (n, 2)
        marks = [self._sources[number].marks[row] for number, row in picked.tolist()]
        width = next((source.dim for source in self._sources), 0)
        with written_whole(self.path) as draft, _created(draft, self.key) as file:
            _write(file, order, marks, len(order), width, self.dtype, self._copied(picked, width))
        shutil.rmtree(self.part, ignore_errors=True)
        self._sources = [EmbeddingStore(self.path, self.key)]
        return self._sources[0]

    def _copied(self, picked: NDArray[np.int64], width: int) -> Iterator[NDArray[Any]]:
        for start in range(0, len(picked), BLOCK):
            block = picked[start : start + BLOCK]
            rows = np.empty((len(block), width), self.dtype)
            for number in np.unique(block[:, 0]).tolist():
                here = block[:, 0] == number
                rows[here] = self._sources[number].vectors[block[here, 1]]
            yield rows


def _write(
    file: h5py.File,
    ids: Sequence[str],
    marks: Sequence[str],
    count: int,
    width: int,
    dtype: str,
    blocks: Iterator[NDArray[Any]],
) -> None:
    file.create_dataset("ids", data=encode_strings(ids))
    file.create_dataset("marks", data=encode_strings(marks))
    made, start = file.create_dataset("vectors", (count, width), dtype), 0
    for rows in blocks:
        made[start : start + len(rows)] = rows
        start += len(rows)


def _created(path: Path, key: Mapping[str, Any]) -> h5py.File:
    file = h5py.File(path, "w")
    text = json.dumps(key, sort_keys=True, ensure_ascii=False)
    file.attrs.update({"format": FORMAT, "schema": SCHEMA, "vlcli": __version__, "key": text})
    return file


def _opened(path: Path) -> h5py.File:
    if not path.is_file():
        raise DataError("the store of embeddings does not exist", where=str(path))
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise _damaged(path, error) from None
    found, version = file.attrs.get("format"), int(file.attrs.get("schema", 0))
    if found != FORMAT or version > SCHEMA:
        file.close()
        got, expected = f"format {found!r}, schema {version}", f"format {FORMAT!r}, schema up to {SCHEMA}"
        raise DataError("this file is no store of embeddings", where=str(path), got=got, expected=expected)
    return file


def _mapped(path: Path, data: h5py.Dataset) -> NDArray[Any]:
    if data.size == 0:
        return np.empty(data.shape, data.dtype)
    found: NDArray[Any] = np.memmap(path, data.dtype, "c", data.id.get_offset(), data.shape)  # torch wants it writable
    return found


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.h5")) if folder.is_dir() else []


def _plain(key: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(key, default=str))
    return made


def _damaged(path: Path, error: object) -> DataError:
    return DataError("the store of embeddings is damaged", where=str(path), got=str(error), hint=AGAIN)


def _stale(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> DataError:
    other = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    return DataError(
        "the embeddings there were made by something else",
        where=str(path),
        got=", ".join(f"{name}: {str(found.get(name))[:60]}" for name in other),
        expected=", ".join(f"{name}: {str(wanted.get(name))[:60]}" for name in other),
        hint=AGAIN,
    )
