"""Read a feature store: one file, several shards, or the segments of an unfinished extraction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlcli.errors import DataError
from vlcli.features.file import SetFile, shards_of
from vlcli.features.schema import FIELDS, Record, decode_strings
from vlcli.images.boxes import image_id, path_ids

BATCH_FIELDS = ("features", "boxes")


class FeatureStore:
    """Region features by image id.

    Nothing is opened before the first question, so that each process opens its own: a store can be
    inherited by forked workers and pickled to spawned ones.

    Args:
        path: an HDF5 file, several files that act as one, a folder of them (shards, or the ``.part``
            folder of an extraction that was interrupted), or the index of joined shards.
        set: box set to read; None for the only one, else the one called ``boxes``.
        hint: the command that would make missing features, shown in errors.
        check: compare every record with its checksum when this process reads it first.
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        set: str | None = None,
        *,
        hint: str = "",
        check: bool = True,
    ) -> None:
        given = [path] if isinstance(path, str | Path) else list(path)
        self._given = [file for one in given for file in _files(Path(one))]
        self.where = ", ".join(str(one) for one in given)
        self.set = set
        self.hint = hint or "extract them with: vlcli extract"
        self._check = check
        self._opened: list[SetFile] | None = None
        self._paths: list[Path] | None = None

    @property
    def paths(self) -> list[Path]:
        """The files behind the store: those given, and instead of an index its shards."""
        if self._paths is None:
            files = [file for given in self._given for file in shards_of(given)]
            # An index may lie in a folder with its shards.
            self._paths = list({file.resolve(): file for file in files}.values())
        return self._paths

    @property
    def indexes(self) -> list[Path]:
        """The files among those given that join shards."""
        return [given for given in self._given if shards_of(given) != [given]]

    @classmethod
    def open(cls, paths: Sequence[str | Path], set: str | None = None) -> FeatureStore:
        """Several shards as one store."""
        return cls(list(paths), set)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_index": {}, "_ids": []}

    def _parts(self) -> list[SetFile]:
        if self._opened is None:
            parts = [SetFile(path, self.set) for path in self.paths]
            _agree(parts, self.where)
            self._ids = [name for part in parts for name in part.ids]
            self._index = {name: place for place, name in enumerate(self._ids)}
            self._starts = np.cumsum([0, *(len(part) for part in parts)])
            if len(self._index) != len(self._ids):
                raise self._twice(parts)
            self._opened = parts
        return self._opened

    def _twice(self, parts: list[SetFile]) -> DataError:
        seen: dict[str, Path] = {}
        for part in parts:
            for name in part.ids:
                if name in seen:
                    got = f"{name!r} in {seen[name]} and {part.path}"
                    return self._doubled(got)
                seen[name] = part.path
        return self._doubled("")

    def _doubled(self, got: str) -> DataError:
        hint = "leave one of the files out, or extract again; vlcli features verify STORE names every fault of a store"
        what, expected = "the shards hold an image twice", "each image once in all files together"
        return DataError(what, where=self.where, got=got, expected=expected, hint=hint)

    def _find(self, name: str) -> tuple[SetFile, int]:
        parts = self._parts()
        place = self._index.get(name)
        if place is None:
            raise self._absent([name])
        if len(parts) == 1:
            return parts[0], place
        shard = int(np.searchsorted(self._starts, place, side="right")) - 1
        return parts[shard], place - int(self._starts[shard])

    def _absent(self, names: list[str]) -> DataError:
        shown = ", ".join(repr(name) for name in names[:3]) + (", ..." if len(names) > 3 else "")
        count = "1 image" if len(names) == 1 else f"{len(names)} images"
        return DataError(
            f"the feature store lacks {count} that the annotations name",
            where=self.where,
            got=shown,
            expected=f"ids like {self._ids[0]!r}" if self._ids else "a store that is not empty",
            hint=self.hint,
        )

    def __len__(self) -> int:
        self._parts()
        return len(self._ids)

    def __contains__(self, name: object) -> bool:
        self._parts()
        return name in self._index

    @property
    def ids(self) -> list[str]:
        """Every image id, in the order of the file."""
        self._parts()
        return self._ids

    @property
    def dim(self) -> int:
        """Width D of the features."""
        return self._width("features")

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of the features."""
        made: np.dtype[Any] = np.dtype(self._parts()[0].dtypes["features"])
        return made

    @property
    def classes_count(self) -> int:
        """Columns of the class distribution, 0 where there is none."""
        return self._width("class_probs")

    @property
    def attributes_count(self) -> int:
        """Columns of the attribute distribution, 0 where there is none."""
        return self._width("attribute_probs")

    @property
    def fields(self) -> tuple[str, ...]:
        """The per-row fields there are."""
        return tuple(self._parts()[0].shapes)

    @property
    def provenance(self) -> dict[str, Any]:
        """What made these features (the first shard's)."""
        return self._parts()[0].provenance

    @property
    def max_regions(self) -> int:
        """Most boxes of any image."""
        return max((int(np.diff(part.offsets).max(initial=0)) for part in self._parts()), default=0)

    def _width(self, name: str) -> int:
        shape = self._parts()[0].shapes.get(name, (0, 0))
        return int(shape[1]) if len(shape) > 1 else 0

    def parts(self) -> list[SetFile]:
        """The files behind the store, for tools that walk all of it."""
        return self._parts()

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those of ``names`` that the store lacks, each once, in order."""
        self._parts()
        return [name for name in dict.fromkeys(names) if name not in self._index]

    def id_of(self, picture: str | Path) -> str:
        """Return the id under which the store holds a picture, by its file or its id; its name where it does not."""
        self._parts()
        return next((name for name in path_ids(picture) if name in self._index), image_id(picture))

    def require(self, names: Iterable[str]) -> None:
        """Refuse to go on without these images.

        Raises:
            DataError: some are missing; the message counts them and names a few.
        """
        if absent := self.missing(names):
            raise self._absent(absent)

    def count(self, name: str) -> int:
        """Number of boxes of an image."""
        part, place = self._find(name)
        return int(part.offsets[place + 1] - part.offsets[place])

    def size(self, name: str) -> tuple[int, int]:
        """Height and width of an image in pixels."""
        part, place = self._find(name)
        height, width = part.sizes[place].tolist()
        return height, width

    def read(self, name: str, fields: Collection[str] | None = None, *, copy: bool = True) -> Record:
        """One image's record.

        Args:
            name: image id.
            fields: optional fields wanted besides features and boxes; None for all.
            copy: own, writable memory; False gives read-only views where the file is mapped.

        Raises:
            DataError: the store lacks the image, or its record is damaged.
        """
        part, place = self._find(name)
        if self._check:
            part.check([place])
        record = part.record(place, None if fields is None else tuple(fields), copy)
        if record.box_ids is not None:
            record.box_ids = np.array(decode_strings(record.box_ids), dtype=np.str_)
        return record

    def read_batch(
        self,
        names: Sequence[str],
        fields: Sequence[str] = BATCH_FIELDS,
        out: Mapping[str, np.ndarray] | None = None,
        rows: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Several images as padded arrays.

        Args:
            names: image ids (B,).
            fields: fields wanted.
            out: arrays to fill, as an earlier call of the same shape returned them.
            rows: pad or cut to this many boxes R; by default the most of any image in the batch.

        Returns:
            Each field as (B, R, ...), ``mask`` (B, R) true at real boxes, ``sizes`` (B, 2) height and width.

        Raises:
            DataError: an image or a field is missing, a record is damaged, or ``out`` does not fit.
        """
        runs = self._runs(names)
        width = rows if rows is not None else max((int(counts.max()) for *_, counts in runs), default=0)
        batch = self._buffers(fields, len(names), width, out)
        for part, into, places, counts in runs:
            if self._check:
                part.check(places.tolist())
            batch["mask"][into] = np.arange(width) < counts[:, None]
            batch["sizes"][into] = part.sizes[places]
            starts = part.offsets[places].tolist()
            ends = np.minimum(counts, width).tolist()
            for name in fields:
                part.fill(name, batch[name], into.tolist(), starts, ends)
        return batch

    def _runs(self, names: Sequence[str]) -> list[tuple[SetFile, np.ndarray, np.ndarray, np.ndarray]]:
        parts = self._parts()
        try:
            places = np.fromiter((self._index[name] for name in names), np.int64, len(names))
        except KeyError:
            raise self._absent(self.missing(names)) from None
        if len(parts) == 1:
            offsets = parts[0].offsets
            return [(parts[0], np.arange(len(names)), places, offsets[places + 1] - offsets[places])]
        shards = np.searchsorted(self._starts, places, side="right") - 1
        runs = []
        for shard in np.unique(shards).tolist():
            into = np.flatnonzero(shards == shard)
            own = places[into] - self._starts[shard]
            part = parts[shard]
            runs.append((part, into, own, part.offsets[own + 1] - part.offsets[own]))
        return runs

    def _buffers(
        self, fields: Sequence[str], size: int, width: int, out: Mapping[str, np.ndarray] | None
    ) -> dict[str, np.ndarray]:
        first = self._parts()[0]
        if absent := [name for name in fields if name not in first.shapes or FIELDS[name].dtype == "S"]:
            there = ", ".join(name for name in first.shapes if FIELDS[name].dtype != "S")
            raise DataError("the feature store lacks a field", where=self.where, got=", ".join(absent), expected=there)
        shapes = {name: ((size, width, *first.shapes[name][1:]), first.dtypes[name]) for name in fields}
        shapes |= {"mask": ((size, width), np.dtype(bool)), "sizes": ((size, 2), np.dtype(np.int32))}
        if out is None:
            return {name: np.empty(shape, dtype) for name, (shape, dtype) in shapes.items()}
        for name, (shape, _) in shapes.items():
            if name not in out or out[name].shape != shape:
                got = str(out[name].shape) if name in out else "nothing"
                raise DataError(f"the array given for {name} does not fit", got=got, expected=str(shape))
        return {name: out[name] for name in shapes}


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.exists():
            part = path.with_name(path.name + ".part")
            hint = f"the extraction into {part} is unfinished: run it again" if part.is_dir() else "vlcli extract"
            raise DataError("the feature store does not exist", where=str(path), hint=hint)
        return [path]
    found = sorted(path.glob("*.h5"))
    if not found:
        raise DataError(
            "the folder holds no feature store", where=str(path), expected="files *.h5", hint="vlcli extract"
        )
    return found


def _agree(parts: list[SetFile], where: str) -> None:
    def shape(part: SetFile) -> dict[str, tuple[Any, ...]]:
        # Strings are as long as the longest of a shard; that difference does not matter.
        types = {name: FIELDS[name].dtype or str(part.dtypes[name]) for name in part.shapes}
        return {name: (part.shapes[name][1:], types[name]) for name in part.shapes}

    for part in parts[1:]:
        if shape(part) != shape(parts[0]):
            raise DataError(
                "the shards do not fit together",
                where=where,
                got=f"{part.path}: {shape(part)}",
                expected=f"as in {parts[0].path}: {shape(parts[0])}",
            )
