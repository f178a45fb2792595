"""Pictures in a folder: their names, which cannot be read, and which of them a column of a table names."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from vlcli.data.files import index_images
from vlcli.data.picture_index import AmbiguousNameError, PictureIndex, path_id
from vlcli.data.reader import Reader
from vlcli.images.boxes import image_id
from vlcli.images.files import BadImageError, read_size

MOST_CHECKED = 2000
"""Pictures whose headers are read."""
_SAMPLE = 40
_CALLED = re.compile(r"(image|img|photo|foto|picture|jpe?g)s?(images)?\Z", re.IGNORECASE)
_PAIRED = 200
"""Rows in which two columns are tried together."""


@dataclass(frozen=True)
class Naming:
    """How a column names pictures.

    Attributes:
        sources: the column, or templates of file names.
        folder: what the names are relative to, under the root.
        share: which share of the values name a picture that is there.
    """

    sources: tuple[str, ...]
    folder: str
    share: float


class Pictures:
    """The pictures under a folder.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.by_id = index_images(root)
        self._indices: dict[str, PictureIndex] = {}

    def __len__(self) -> int:
        """How many there are."""
        return sum(map(len, self.by_id.values()))

    @cached_property
    def paths(self) -> set[str]:
        """Their paths relative to the root."""
        return {path.relative_to(self.root).as_posix() for found in self.by_id.values() for path in found}

    @cached_property
    def folders(self) -> list[str]:
        """The folders that hold some, those with most first."""
        found = Counter(str(PurePosixPath(path).parent) for path in self.paths)
        return [folder for folder, _ in found.most_common()]

    @cached_property
    def folder(self) -> str:
        """The innermost folder that holds all of them."""
        return os.path.commonpath(self.folders) or "." if "." not in self.folders else "."

    def unreadable(self) -> dict[Path, str]:
        """Pictures whose header cannot be read, with the reason; of many, a sample is looked at."""
        every = [path for found in self.by_id.values() for path in found]
        found = {}
        for path in every[:: max(1, len(every) // MOST_CHECKED)]:
            try:
                read_size(path)
            except BadImageError as error:
                found[path] = str(error)
        return found

    def sizes(self) -> tuple[int, int]:
        """Median width and height of a sample; 0 where none can be read."""
        wide, high = [], []
        for found in list(self.by_id.values())[:: max(1, len(self.by_id) // 50)]:
            try:
                height, width = read_size(found[0])
            except BadImageError:
                continue
            wide.append(width)
            high.append(height)
        return (sorted(wide)[len(wide) // 2], sorted(high)[len(high) // 2]) if wide else (0, 0)

    def named_by(self, column: str, values: Sequence[Any], beside: Path) -> Naming | None:
        """How the values of a column name pictures; None where fewer than half do.

        Args:
            column: its name.
            values: what it holds: names, paths, ids, or lists of them.
            beside: the folder of the table, which paths may be relative to.
        """
        names = [name for value in values for name in _names(value)]
        return self._best((column,), names, beside) if names else None

    def by_two_columns(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], beside: Path) -> Naming | None:
        """How a column of folders and one of names name pictures together; None where fewer than half do.

        Args:
            rows: of the table.
            columns: those that may do it.
            beside: the folder of the table.
        """
        rows, found = rows[:_PAIRED], []
        for folder, name in itertools.permutations(columns, 2):
            pairs = [f"{row[folder]}/{row[name]}" for row in rows if _is_name(row.get(folder), row.get(name))]
            naming = self._best((f"{{{folder}}}/{{{name}}}",), pairs, beside) if len(pairs) > len(rows) / 2 else None
            found += [naming] if naming is not None else []
        return max(found, key=lambda one: one.share, default=None)

    def _best(self, sources: tuple[str, ...], names: list[str], beside: Path) -> Naming | None:
        """The folder to which most names are relative, as the readers will find them; of several, the plainest."""
        here = os.path.relpath(beside, self.root).replace(os.sep, "/")
        usual = dict.fromkeys((".", self.folder, here))
        exact = {
            folder: sum(os.path.normpath(PurePosixPath(folder, name)) in self.paths for name in names)
            for folder in dict.fromkeys((*usual, *self.folders[:50]))
        }
        whole = [folder for folder, count in exact.items() if count == len(names)]
        if whole:
            return _nearest(sources, whole, here)
        best = max(exact, key=lambda folder: exact[folder])
        found = {folder: self._found(folder, names) for folder in dict.fromkeys((*usual, best))}
        best = max(found, key=lambda folder: found[folder])
        share = found[best][0] / len(names)
        return Naming(sources, best, share) if share >= 0.5 else None

    def _found(self, folder: str, names: list[str]) -> tuple[int, int]:
        """How many names find a file under a folder, and minus how far these differ from their files' in all."""
        index, count, differences = self._index(folder), 0, 0
        for name in names:
            try:
                match = index.find(name)
            except AmbiguousNameError:
                continue
            if match is not None:
                count, differences = count + 1, differences + match.distance
        return count, -differences

    def _index(self, folder: str) -> PictureIndex:
        if folder not in self._indices:
            self._indices[folder] = PictureIndex(self.root / folder)
        return self._indices[folder]

    def has(self, image: str) -> bool:
        """Whether there is a picture for an image id, whether that is a name or a path."""
        try:
            return self._index(".").find(image) is not None
        except AmbiguousNameError:
            return True

    def by_template(self, column: str, values: Sequence[Any]) -> Naming | None:
        """File names of which a column's values are a part; one template a picture of the row."""
        sample = list(dict.fromkeys(str(value) for value in values if isinstance(value, str | int)))
        sample = [value for value in sample if re.fullmatch(r"[\w.-]{1,80}", value)]
        sample = sample[:: max(1, len(sample) // _SAMPLE)][:_SAMPLE]
        if len(sample) < 3:
            return None
        votes: Counter[str] = Counter()
        for value in sample:
            votes.update(self._templates(column, value))
        kept = sorted(template for template, count in votes.items() if count >= 0.8 * len(sample))
        share = min((votes[template] / len(sample) for template in kept), default=0.0)
        return Naming(tuple(kept), self.folder, share) if 1 <= len(kept) <= 2 else None

    def _templates(self, column: str, value: str) -> set[str]:
        digit = value.isdigit()
        pattern = re.compile(rf"(?<![0-9])(0*){re.escape(value)}(?![0-9])" if digit else f"(){re.escape(value)}")
        found = set()
        for name, paths in self.by_id.items():
            hit = pattern.search(name)
            if hit is None:
                continue
            width = len(hit[1]) + len(value)
            part = f"{{{column}:0{width}}}" if digit and hit[1] else f"{{{column}}}"
            found.add(f"{name[: hit.start()]}{part}{name[hit.end() :]}{paths[0].suffix}")
        return found


def ids_of(readers: Sequence[Reader]) -> str:
    """What image ids must be so that no two pictures of some data sets share one: ``name``, ``path`` or ``file``.

    Raises:
        DataError: several files fit a name, or two names find one file.
    """
    found: dict[str, Path] = {}
    for reader in readers:
        for name, path in reader.image_files().items():
            if reader.ids != "name" or found.setdefault(name, path) != path:
                return reader.ids if reader.ids != "name" else "path"
    return "name"


def _nearest(sources: tuple[str, ...], folders: list[str], here: str) -> Naming | None:
    """Of folders that all have every name, the one nearest to the table, or called after pictures; None if unclear."""

    def nearness(folder: str) -> tuple[int, bool]:
        pairs = zip(folder.split("/"), here.split("/"), strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)), bool(_CALLED.search(folder))

    first, *others = sorted(folders, key=nearness, reverse=True)
    return None if others and nearness(others[0]) == nearness(first) else Naming(sources, first, 1.0)


def ids_of_file(root: Path, path: Path) -> tuple[str, str, str]:
    """The ids that a picture may have."""
    return image_id(path), path_id(root, root, str(path)), path_id(root, root, str(path), ending=True)


def _is_name(*cells: Any) -> bool:
    return all(isinstance(cell, str | int) and bool(str(cell).strip()) for cell in cells)


def _names(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(item) for item in value if isinstance(item, str | int)]
    if isinstance(value, dict) and isinstance(value.get("path"), str):
        return [value["path"]]
    if isinstance(value, str):
        return [name.strip() for name in value.split(";") if name.strip()]
    return [str(value)] if isinstance(value, int) and not isinstance(value, bool) else []
