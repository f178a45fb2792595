"""Stores vectors of sentences or pictures by name, memory-mapped for search.

A store is one HDF5 file::

    /          attributes: format, schema, vlcli, key (JSON: what the vectors depend on)
    ids        (n,)    fixed-length UTF-8
    marks      (n,)    fixed-length UTF-8: state of a vector's source, e.g. a picture's size and time; may be empty
    vectors    (n, D)  float32 or float16, contiguous, so that a reader maps it

Like a feature store (:mod:`vlcli.features.writer`), an unfinished one is a folder ``NAME.part`` of small complete
files, so that a kill loses only the last seconds and several processes may fill it.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
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
# Rows copied at a time.
BLOCK = 1 << 14
AGAIN = "delete it and run the same command again"


class EmbeddingStore:
    """Vectors by name, of one file or of one unfinished part.

    ``key`` is what they must have been made with (None: any). DataError: missing, no store, damaged, or of another key.
    """

    def __init__(self, path: str | Path, key: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise DataError("the store of embeddings does not exist", where=str(path))
        try:
            with h5py.File(self.path, "r") as file:
                kind, version = file.attrs.get("format"), int(file.attrs.get("schema", 0))
                if kind != FORMAT or version > SCHEMA:
                    got, expected = f"format {kind!r}, schema {version}", f"format {FORMAT!r}, schema up to {SCHEMA}"
                    what = "this file is no store of embeddings"
                    raise DataError(what, where=str(path), got=got, expected=expected)
                self.key: dict[str, Any] = json.loads(file.attrs["key"])
                self.ids, self.marks = (decode_strings(file[name][()]) for name in ("ids", "marks"))
                data = file["vectors"]
                self.vectors: NDArray[Any] = (
                    np.memmap(self.path, data.dtype, "c", data.id.get_offset(), data.shape)  # torch wants it writable
                    if data.size
                    else np.empty(data.shape, data.dtype)
                )
        except (KeyError, OSError, ValueError, TypeError) as error:
            raise _damaged(self.path, error) from None
        if len({len(self.ids), len(self.marks), len(self.vectors)}) > 1:
            raise _damaged(self.path, f"{len(self.ids)} names, {len(self.vectors)} vectors")
        if key is not None and self.key != (wanted := _as_json(key)):
            other = sorted(name for name in {*self.key, *wanted} if self.key.get(name) != wanted.get(name))
            raise DataError(
                "the embeddings there were made by something else",
                where=str(self.path),
                got=", ".join(f"{name}: {str(self.key.get(name))[:60]}" for name in other),
                expected=", ".join(f"{name}: {str(wanted.get(name))[:60]}" for name in other),
                hint=AGAIN,
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    def rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}


class EmbeddingWriter:
    """Fills a store; after a kill it goes on with the vectors that are written.

    Args:
        path: the finished file.
        key: what the vectors depend on: the weights above all.
        stale: ``refuse`` (DataError) or ``replace`` a store or a part with another key.
        dtype: float type on disk.
        flush_every: most vectors held in memory.
        flush_seconds: longest time between parts.
        rank: of this process among those that write together; only 0 clears up and finishes.
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
        self.path, self.key, self.dtype, self.rank = Path(path), _as_json(key), dtype, rank
        self.part = self.path.with_name(self.path.name + ".part")
        self._limits = flush_every, flush_seconds
        self.replaced = False
        self._open(stale)
        self._waiting: list[tuple[list[str], list[str], NDArray[Any]]] = []
        self._count, self._since = 0, monotonic()
        self._number = max((int(file.stem.split("-")[-1]) for file in self.part.glob("*.h5")), default=-1) + 1

    def _open(self, stale: str) -> None:
        """Open the finished store and the parts of the same key, in the order of writing."""
        self._sources: list[EmbeddingStore] = []
        for file in [*([self.path] if self.path.exists() else []), *sorted(self.part.glob("*.h5"))]:
            try:
                self._sources.append(EmbeddingStore(file, self.key))
            except DataError:
                if stale == "refuse" or (file == self.path and _is_other(file)):
                    raise
                self.replaced = True
                if file != self.path and self.rank == 0:
                    file.unlink(missing_ok=True)
        # Mark of each written vector, by name.
        self.marks = dict(pair for source in self._sources for pair in zip(source.ids, source.marks, strict=True))

    def __contains__(self, name: object) -> bool:
        return name in self.marks

    def lacks(self, names: Mapping[str, str]) -> list[str]:
        """Return those of ``names`` (with their marks) that have no vector, or one with another mark."""
        return [name for name, mark in names.items() if self.marks.get(name) != mark]

    def append(self, ids: Sequence[str], vectors: NDArray[Any], marks: Sequence[str] | None = None) -> None:
        """Add vectors (n, D); they replace those of the same names.

        Raises DataError: not finite, or not as wide as the others; VlcliError: the disk is full.
        """
        rows = np.ascontiguousarray(vectors, dtype=self.dtype)
        known = [source.dim for source in self._sources if len(source)] + [part.shape[1] for *_, part in self._waiting]
        if rows.ndim != 2 or len(rows) != len(ids) or any(width != rows.shape[1] for width in known[:1]):
            got, expected = str(rows.shape), f"({len(ids)}, {known[0] if known else 'D'})"
            raise DataError("these vectors do not fit the store", where=str(self.path), got=got, expected=expected)
        if not np.isfinite(rows).all():
            bad = ids[int(np.argmin(np.isfinite(rows).all(axis=1)))]
            raise DataError("a vector is not finite", where=str(self.path), got=repr(bad))
        marks = [""] * len(ids) if marks is None else marks
        self._waiting.append((list(ids), list(marks), rows))
        self.marks.update(zip(ids, marks, strict=True))
        self._count += len(ids)
        if self._count >= self._limits[0] or monotonic() - self._since > self._limits[1]:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            ids, marks, parts = zip(*self._waiting, strict=True)
            vectors = np.concatenate(parts)
            path = self.part / f"{self.rank:04d}-{self._number:08d}.h5"
            self._write(path, list(chain(*ids)), list(chain(*marks)), vectors.shape[1], iter([vectors]))
            self._waiting, self._count, self._number = [], 0, self._number + 1
        self._since = monotonic()

    def finish(self, order: Sequence[str]) -> EmbeddingStore:
        """Write the vectors of ``order``, in that order, into the finished file; drop others."""
        self.flush()
        self._open("replace" if self.replaced else "refuse")
        if [source.path for source in self._sources] != [self.path] or self._sources[0].ids != list(order):
            if missing := [name for name in order if name not in self.marks]:
                raise DataError("vectors are missing", where=str(self.path), got=", ".join(missing[:3]))
            rows = {name: (n, row) for n, source in enumerate(self._sources) for row, name in enumerate(source.ids)}
            picked = np.array([rows[name] for name in order], dtype=np.int64).reshape(-1, 2)  # (n, 2): source, row
            width = next((source.dim for source in self._sources), 0)
            self._write(self.path, order, [self.marks[name] for name in order], width, self._copied(picked, width))
            self._sources = [EmbeddingStore(self.path, self.key)]
        shutil.rmtree(self.part, ignore_errors=True)
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
        self, path: Path, ids: Sequence[str], marks: Sequence[str], width: int, blocks: Iterator[NDArray[Any]]
    ) -> None:
        key = json.dumps(self.key, sort_keys=True, ensure_ascii=False)
        with written_whole(path) as draft, h5py.File(draft, "w") as file:
            file.attrs.update({"format": FORMAT, "schema": SCHEMA, "vlcli": __version__, "key": key})
            file.create_dataset("ids", data=encode_strings(ids))
            file.create_dataset("marks", data=encode_strings(marks))
            vectors, start = file.create_dataset("vectors", (len(ids), width), self.dtype), 0
            for rows in blocks:
                vectors[start : start + len(rows)] = rows
                start += len(rows)


def _is_other(path: Path) -> bool:
    # no store, whole or damaged, but a file of something else, which is not replaced
    if path.is_dir() or (path.suffix != ".h5" and path.stat().st_size and not h5py.is_hdf5(path)):
        return True
    with suppress(OSError), h5py.File(path, "r") as file:
        return bool(file.attrs.get("format") != FORMAT)
    return False


def _as_json(key: Mapping[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(key, default=str))
    return content


def _damaged(path: Path, error: object) -> DataError:
    return DataError("the store of embeddings is damaged", where=str(path), got=str(error), hint=AGAIN)
