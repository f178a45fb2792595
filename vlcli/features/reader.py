"""Reads a feature store: one file, several shards, or the segments of an unfinished extraction."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlcli.errors import DataError
from vlcli.features.file import SetFile, shards_of
from vlcli.features.schema import FIELDS, Record, decode_strings
from vlcli.images.boxes import image_id, path_ids

BATCH_FIELDS = ("features", "boxes")


class FeatureStore:
    """Region features by image id.

    Files are opened on first access, so that forked and spawned workers each open their own.

    Args:
        path: an HDF5 file, several files that act as one, a folder of them (shards, or the ``.part`` folder of an
            interrupted extraction), or the index of joined shards.
        set: box set to read; None: the only one, else ``boxes``.
        hint: command that makes missing features, for errors.
        check: compare every record with its checksum on first access.
    """

    def __init__(
        self, path: str | Path | Sequence[str | Path], set: str | None = None, *, hint: str = "", check: bool = True
    ) -> None:
        paths = [path] if isinstance(path, str | Path) else list(path)
        self._named = [file for one in paths for file in _files(Path(one))]
        self.where = ", ".join(map(str, paths))
        self.set = set
        self.hint = hint or "extract them with: vlcli extract"
        self._check = check
        self._opened: list[SetFile] | None = None

    @cached_property
    def paths(self) -> list[Path]:
        """The files of the store; instead of an index its shards."""
        files = [file for named in self._named for file in shards_of(named)]
        # An index may lie in a folder with its shards.
        return list({file.resolve(): file for file in files}.values())

    @property
    def indexes(self) -> list[Path]:
        return [named for named in self._named if shards_of(named) != [named]]

    def __getstate__(self) -> dict[str, Any]:
        opened = ("ids", "_index", "_starts")
        return {name: value for name, value in vars(self).items() if name not in opened} | {"_opened": None}

    def parts(self) -> list[SetFile]:
        if self._opened is None:
            parts = [SetFile(path, self.set) for path in self.paths]
            parts = [part for part in parts if len(part)] or parts[:1]  # without images, a shard knows no width
            _agree(parts, self.where)
            counts = Counter(name for part in parts for name in part.ids)
            if counts.total() > len(counts):
                name = counts.most_common(1)[0][0]
                files = [part.path for part in parts for one in part.ids if one == name]
                hint = "leave one of the files out, or extract again"
                hint += "; vlcli features verify STORE names every fault of a store"
                what, expected = "the shards hold an image twice", "each image once in all files together"
                got = f"{name!r} in {files[0]} and {files[1]}"
                raise DataError(what, where=self.where, got=got, expected=expected, hint=hint)
            self._opened = parts
        return self._opened

    @cached_property
    def ids(self) -> list[str]:
        """Every image id, in the order of the file."""
        return [name for part in self.parts() for name in part.ids]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.ids)}

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *(len(part) for part in self.parts())])

    def _find(self, name: str) -> tuple[SetFile, int]:
        number = self._index.get(name)
        if number is None:
            raise self._absent([name])
        shard = int(np.searchsorted(self._starts, number, side="right")) - 1
        return self.parts()[shard], number - int(self._starts[shard])

    def _absent(self, names: list[str]) -> DataError:
        count = "1 image" if len(names) == 1 else f"{len(names)} images"
        what = f"the feature store lacks {count} that the annotations name"
        got = ", ".join(repr(name) for name in names[:3]) + (", ..." if len(names) > 3 else "")
        expected = f"ids like {self.ids[0]!r}" if self.ids else "a store that is not empty"
        return DataError(what, where=self.where, got=got, expected=expected, hint=self.hint)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    @property
    def dim(self) -> int:
        """Width D of the features."""
        return self.parts()[0].widths["features"]

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.parts()[0].dtypes["features"]
        return dtype

    @property
    def classes_count(self) -> int:
        """Columns of the class distribution, 0 where there is none."""
        return self.parts()[0].widths.get("class_probs", 0)

    @property
    def attributes_count(self) -> int:
        """Columns of the attribute distribution, 0 where there is none."""
        return self.parts()[0].widths.get("attribute_probs", 0)

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self.parts()[0].shapes)

    @property
    def provenance(self) -> dict[str, Any]:
        return self.parts()[0].provenance

    @property
    def max_regions(self) -> int:
        return max((int(np.diff(part.offsets).max(initial=0)) for part in self.parts()), default=0)

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return those of ``names`` that the store lacks, each once, in order."""
        return [name for name in dict.fromkeys(names) if name not in self._index]

    def id_of(self, picture: str | Path) -> str:
        """Return the store's id of a picture, by its file or its id; the file's name where it is missing."""
        return next((name for name in path_ids(picture) if name in self._index), image_id(picture))

    def require(self, names: Iterable[str]) -> None:
        """Raise DataError where the store lacks one of these images."""
        if absent := self.missing(names):
            raise self._absent(absent)

    def count(self, name: str) -> int:
        part, number = self._find(name)
        return int(part.offsets[number + 1] - part.offsets[number])

    def size(self, name: str) -> tuple[int, int]:
        """Return height and width of an image in pixels."""
        part, number = self._find(name)
        height, width = part.sizes[number].tolist()
        return height, width

    def read(self, name: str, fields: Collection[str] | None = None, *, copy: bool = True) -> Record:
        """Read one image's record.

        Args:
            fields: fields besides features and boxes; None: all.
            copy: False gives read-only views where the file is mapped.

        Raises:
            DataError: the store lacks the image, or its record is damaged.
        """
        part, number = self._find(name)
        if self._check:
            part.check([number])
        record = part.record(number, None if fields is None else tuple(fields), copy)
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
        """Read several images (B,) into padded arrays.

        Args:
            out: arrays to fill, of an earlier call of the same shape.
            rows: pad or cut to this many boxes R; by default the most of an image in the batch.

        Returns:
            Each field as (B, R, ...), ``mask`` (B, R) true at real boxes, ``sizes`` (B, 2) height and width.

        Raises:
            DataError: an image or a field is missing, a record is damaged, or ``out`` does not fit.
        """
        runs = self._runs(names)
        width = rows if rows is not None else max((int(counts.max()) for *_, counts in runs), default=0)
        batch = self._buffers(fields, len(names), width, out)
        for part, into, images, counts in runs:
            if self._check:
                part.check(images.tolist())
            batch["mask"][into] = np.arange(width) < counts[:, None]
            batch["sizes"][into] = part.sizes[images]
            where = into.tolist(), part.offsets[images].tolist(), np.minimum(counts, width).tolist()
            for name in fields:
                part.fill(name, batch[name], *where)
        return batch

    def _runs(self, names: Sequence[str]) -> list[tuple[SetFile, np.ndarray, np.ndarray, np.ndarray]]:
        """Return each file with the batch rows that it fills, its images' numbers and their counts of boxes."""
        try:
            numbers = np.fromiter((self._index[name] for name in names), np.int64, len(names))
        except KeyError:
            raise self._absent(self.missing(names)) from None
        shards = np.searchsorted(self._starts, numbers, side="right") - 1
        runs = []
        for shard in np.unique(shards).tolist():
            part, into = self.parts()[shard], np.flatnonzero(shards == shard)
            images = numbers[into] - self._starts[shard]
            runs.append((part, into, images, part.offsets[images + 1] - part.offsets[images]))
        return runs

    def _buffers(
        self, fields: Sequence[str], size: int, width: int, out: Mapping[str, np.ndarray] | None
    ) -> dict[str, np.ndarray]:
        first = self.parts()[0]
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
    if not path.exists():
        part = path.with_name(path.name + ".part")
        hint = f"the extraction into {part} is unfinished: run it again" if part.is_dir() else "vlcli extract"
        raise DataError("the feature store does not exist", where=str(path), hint=hint)
    files = sorted(path.glob("[!.]*.h5")) if path.is_dir() else [path]
    if not files:
        what, expected = "the folder holds no feature store", "files *.h5"
        raise DataError(what, where=str(path), expected=expected, hint="vlcli extract")
    return files


def _agree(parts: list[SetFile], where: str) -> None:
    # Strings are as long as the longest of a shard; that difference does not matter.
    layouts = [
        {name: (shape[1:], FIELDS[name].dtype or str(part.dtypes[name])) for name, shape in part.shapes.items()}
        for part in parts
    ]
    for part, layout in zip(parts, layouts, strict=True):
        if layout != layouts[0]:
            got, expected = f"{part.path}: {layout}", f"as in {parts[0].path}: {layouts[0]}"
            raise DataError("the shards do not fit together", where=where, got=got, expected=expected)
