"""Writes pictures inside tables and arrays as files, with a table of JSON lines beside them."""

import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image

from vlcli.data.arrays import ArrayTable, array_files, array_tables
from vlcli.data.readers.arrow import arrow_rows
from vlcli.errors import DataError, UsageError
from vlcli.files import new_folder
from vlcli.images.files import MAX_PIXELS, BadImageError, read_format
from vlcli.progress import Progress, Silent

IMAGES = "images"
_UNSAFE = re.compile(r"[^\w.\-]+")
# What a shard's name has beside its split: `train-00000-of-00002`, `data-00000-of-00001`, `0000`.
_SHARD = re.compile(r"^(data-?)?\d+(-of-\d+)?$|-\d+-of-\d+(-\w+)?$")


@dataclass
class Unpacked:
    """Rows by table, number of picture files, and reasons of rows that are left out for a picture that is unusable."""

    tables: dict[str, int] = field(default_factory=dict)
    pictures: int = 0
    bad: dict[str, str] = field(default_factory=dict)


def unpack(source: Path, folder: Path, max_pixels: int = MAX_PIXELS, progress: Progress | None = None) -> Unpacked:
    """Write the pictures of tables or arrays to ``images/``, and each split as JSON lines with the names of the files.

    Cells of tables are pictures where they hold ``bytes`` and ``path``, as ``datasets`` writes them, also in lists.
    Equal pictures are written once. Labels that are numbers are written by name where names are known.

    Args:
        source: a Parquet or Arrow file, or a folder of them: shards of one split, in one folder, are one table; or
            files of arrays (:mod:`vlcli.data.arrays`), whose pictures become PNG files.
        folder: to write; it appears complete or not at all.

    Raises:
        DataError: there is no table and no array, one is damaged, or none of its cells holds a picture.
        UsageError: the folder is there already.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("The folder is there already.", where=str(folder), hint="name a new folder with --out")
    tables, unpacked = _tables(source), Unpacked()
    with new_folder(folder) as scratch:
        (scratch / IMAGES).mkdir()
        writer = _Writer(scratch / IMAGES, max_pixels)
        for name, rows in tables:
            before = unpacked.tables.setdefault(name, 0)
            file, task = scratch / f"{name}.jsonl", (progress or Silent()).task(f"unpack {name}", None, "rows")
            with task as bar, file.open("a", encoding="utf-8") as stream:
                for number, row in enumerate(rows, before):
                    try:
                        plain = {key: writer.cell(cell, f"{name}-{number:06d}") for key, cell in row.items()}
                        stream.write(json.dumps(plain, ensure_ascii=False, default=str) + "\n")
                        unpacked.tables[name] += 1
                    except BadImageError as error:
                        unpacked.bad[f"{name}[{number}]"] = str(error)
                    bar.advance()
        unpacked.pictures = len(writer.names)
        if not unpacked.pictures:
            got = next((f"{where}: {why}" for where, why in unpacked.bad.items()), "no cell with bytes and path")
            expected = "a column of pictures as Hugging Face's datasets writes them"
            hint = "" if unpacked.bad else "read the table as it is: {name: parquet, file: FILE}"
            what = "The table holds no picture that can be written."
            raise DataError(what, where=str(source), got=got, expected=expected, hint=hint)
    return unpacked


def _tables(source: Path) -> Iterable[tuple[str, Iterator[dict[str, Any]]]]:
    """Return name and rows of each table, those of arrays where there are no others; a name may come again."""
    if array_files(source) and not any(source.rglob("*.parquet")) and not any(source.rglob("*.arrow")):
        return ((name, _array_rows(table)) for name, table in array_tables(source))
    return ((name, (row for file in files for row in arrow_rows(file, 64))) for name, files in _files(source).items())


def _array_rows(table: ArrayTable) -> Iterator[dict[str, Any]]:
    for number, pixels in enumerate(table.pictures):
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, "PNG")
        picture = {"bytes": content.getvalue(), "path": None}
        yield {"image": picture} | {name: column[number] for name, column in table.columns.items()}


def _files(source: Path) -> dict[str, list[Path]]:
    """Return the files of each table; a table is named after its folders below ``source`` and its split."""
    if source.is_file():
        return {_UNSAFE.sub("-", source.stem) or "table": [source]}
    tables: dict[str, list[Path]] = {}
    for file in sorted(path for ending in ("parquet", "arrow") for path in source.rglob(f"*.{ending}")):
        if not file.name.startswith("cache-"):  # what `map` and `filter` of datasets left beside the data
            parts = [*file.relative_to(source).parent.parts, _SHARD.sub("", file.stem)]
            name = "-".join(_UNSAFE.sub("-", part) for part in parts if part not in ("", "data"))
            tables.setdefault(name or "train", []).append(file)
    if not tables:
        example = "data/train-00000-of-00001.parquet"
        expected = f"a .parquet or .arrow file, a folder with splits, such as {example}, or arrays"
        raise DataError("There is no table here.", where=str(source), expected=expected)
    return tables


class _Writer:
    def __init__(self, folder: Path, max_pixels: int) -> None:
        self.folder, self.max_pixels = folder, max_pixels
        self.names: dict[str, str] = {}
        self._taken: set[str] = set()

    def cell(self, cell: Any, usual: str) -> Any:
        """Write the pictures of a cell and put their names in place; ``usual`` names one whose path cannot."""
        if isinstance(cell, list):
            return [self.cell(one, f"{usual}-{number}") for number, one in enumerate(cell)]
        if not isinstance(cell, dict) or set(cell) != {"bytes", "path"}:
            return cell
        content, path = cell["bytes"], cell["path"]
        if content is None:
            return path
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self.names:
            ending = read_format(content, self.max_pixels)
            stem = _UNSAFE.sub("-", PurePosixPath((path or "").replace("\\", "/")).stem).strip(".-")[:100] or usual
            stems = chain((stem, usual), (f"{usual}-{more}" for more in count(2)))
            name = next(name for name in stems if name.lower() not in self._taken)
            self._taken.add(name.lower())
            self.names[digest] = f"{name}{ending}"
            (self.folder / self.names[digest]).write_bytes(content)
        return self.names[digest]
