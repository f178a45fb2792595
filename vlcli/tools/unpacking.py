"""Pictures that lie inside Parquet and Arrow tables, written out as files with a table of JSON lines beside them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from vlcli.data.readers.arrow import record_batches, shards
from vlcli.errors import DataError, UsageError
from vlcli.files import new_folder
from vlcli.images.files import MAX_PIXELS, BadImageError, read_format
from vlcli.progress import Progress, Silent

SPLITS = ("train", "validation", "val", "dev", "test")
IMAGES = "images"
_UNSAFE = re.compile(r"[^\w.\-]+")


@dataclass
class Unpacked:
    """What was written.

    Attributes:
        tables: rows by the name of the table.
        pictures: how many files.
        bad: pictures that cannot be used, with the reason, by table and row; their rows are left out.
    """

    tables: dict[str, int] = field(default_factory=dict)
    pictures: int = 0
    bad: dict[str, str] = field(default_factory=dict)


def unpack(source: Path, folder: Path, max_pixels: int = MAX_PIXELS, progress: Progress | None = None) -> Unpacked:
    """Write the pictures of a table, or of a folder of ``datasets``, to ``images/``, and each split as JSON lines.

    Cells are pictures where they hold ``bytes`` and ``path``, as ``datasets`` writes them, also in lists; in the JSON
    lines stands the name of the file. Equal pictures are written once.

    Args:
        source: a Parquet or Arrow file, or a folder with one layout of ``datasets``.
        folder: what is made; it appears complete or not at all.
        max_pixels: larger pictures are not written.
        progress: counts rows.

    Raises:
        DataError: there is no table, it is damaged, or none of its cells holds a picture.
        UsageError: the folder is there already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("The folder is there already.", where=str(folder), hint="name a new folder with --into")
    tables = _tables(source)
    found = Unpacked()
    with new_folder(folder) as beside:
        (beside / IMAGES).mkdir()
        writer = _Writer(beside / IMAGES, max_pixels)
        for name, files in tables.items():
            with (progress or Silent()).task(f"unpack {name}", None, "rows") as bar:
                found.tables[name] = _lines(writer, name, files, beside / f"{name}.jsonl", found, bar)
        found.pictures = len(writer.names)
        if not found.pictures:
            raise _no_pictures(source, found)
    return found


def _tables(source: Path) -> dict[str, list[Path]]:
    """The files of each split; of a single file, its own name."""
    if source.is_file():
        return {_UNSAFE.sub("-", source.stem) or "table": [source]}
    found = {split: files for split in SPLITS if (files := shards(source, split))}
    first = next(iter(found.values()), None)
    if first is None:
        expected = "a .parquet or .arrow file, or a folder with splits, such as data/train-00000-of-00001.parquet"
        raise DataError("There is no table here.", where=str(source), expected=expected)
    whole = all(files == first for files in found.values())  # one data set without splits
    return {"train": first} if whole else found


def _lines(writer: _Writer, name: str, files: list[Path], out: Path, found: Unpacked, bar: Any) -> int:
    count = number = 0
    with out.open("w", encoding="utf-8") as stream:
        for row in _rows(files):
            try:
                plain = {column: writer.cell(cell, f"{name}-{number:06d}") for column, cell in row.items()}
                stream.write(json.dumps(plain, ensure_ascii=False, default=str) + "\n")
                count += 1
            except BadImageError as error:
                found.bad[f"{name}[{number}]"] = str(error)
            number += 1
            bar.advance()
    return count


def _rows(files: list[Path]) -> Iterator[dict[str, Any]]:
    for file in files:
        for batch in record_batches(file, 64):  # pictures are large: few rows at a time
            yield from batch.to_pylist()


class _Writer:
    """Writes pictures under names of their own.

    Args:
        folder: where to.
        max_pixels: of a picture.
    """

    def __init__(self, folder: Path, max_pixels: int) -> None:
        self.folder, self.max_pixels = folder, max_pixels
        self.names: dict[str, str] = {}
        """By digest of the content."""
        self._taken: set[str] = set()

    def cell(self, cell: Any, usual: str) -> Any:
        """The cell with names in place of pictures; ``usual`` names a picture whose path does not."""
        if isinstance(cell, list):
            return [self.cell(one, f"{usual}-{place}") for place, one in enumerate(cell)]
        if not isinstance(cell, dict) or set(cell) != {"bytes", "path"}:
            return cell
        return cell["path"] if cell["bytes"] is None else self._written(cell["bytes"], cell["path"] or "", usual)

    def _written(self, content: bytes, path: str, usual: str) -> str:
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self.names:
            ending = read_format(content, self.max_pixels)
            self.names[digest] = self._free(path, usual, ending)
            (self.folder / self.names[digest]).write_bytes(content)
        return self.names[digest]

    def _free(self, path: str, usual: str, ending: str) -> str:
        """A file name that is free: the last part of the path, without signs that mean something to a system."""
        stem = _UNSAFE.sub("-", PurePosixPath(path.replace("\\", "/")).stem).strip(".-")[:100] or usual
        for name in (stem, usual, *(f"{usual}-{more}" for more in range(2, 1_000_000))):
            if name.lower() not in self._taken:
                break
        self._taken.add(name.lower())
        return f"{name}{ending}"


def _no_pictures(source: Path, found: Unpacked) -> DataError:
    got = next((f"{where}: {why}" for where, why in found.bad.items()), "no cell with bytes and path")
    expected = "a column of pictures as Hugging Face's datasets writes them"
    hint = "" if found.bad else "read the table as it is: {name: parquet, file: FILE}"
    what = "The table holds no picture that can be written."
    return DataError(what, where=str(source), got=got, expected=expected, hint=hint)
