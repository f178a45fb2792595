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
from vlcli.data.picture_index import AmbiguousNameError, PictureIndex
from vlcli.images.files import BadImageError, read_size

_SAMPLE = 40
_AMBIGUOUS = 100
"""How far a name that several files fit differs from them: more than any that one file fits."""
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
        also: other folders in which as many are.
    """

    sources: tuple[str, ...]
    folder: str
    share: float
    also: tuple[str, ...] = ()


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
        return sorted(found, key=lambda folder: (-found[folder], folder))

    @cached_property
    def folder(self) -> str:
        """The innermost folder that holds all of them."""
        return "." if "." in self.folders or not self.folders else os.path.commonpath(self.folders) or "."

    def ending(self, name: str) -> str:
        """The longest end of a path of another machine that is a picture's path; the path itself without any."""
        parts = PurePosixPath(name).parts
        ends = ("/".join(parts[start:]) for start in range(len(parts)))
        return next((end for end in ends if end in self.paths), name)

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
            except AmbiguousNameError:  # the parts may tell which is meant; else readers refuse the name
                count, differences = count + 1, differences + _AMBIGUOUS
                continue
            if match is not None:
                count, differences = count + 1, differences + match.distance
        return count, -differences

    def _index(self, folder: str) -> PictureIndex:
        if folder not in self._indices:
            self._indices[folder] = PictureIndex(self.root / folder)
        return self._indices[folder]

    def place_of(self, names: Sequence[str], split: str) -> str:
        """Where pictures of a part lie, as ``{split}/images/*.png``; empty where no folder of the part has most.

        Args:
            names: of the part's pictures, with endings or without (then the pattern has the usual one).
            split: word for the part, which the folder's path holds.
        """
        for place in (one for one in self.folders if split in one):
            endings = {PurePosixPath(path).stem: PurePosixPath(path).suffix for path in self._inside(place)}
            names_there = {f"{stem}{ending}" for stem, ending in endings.items()}
            if sum(name in names_there for name in names) > len(names) / 2:
                return f"{place.replace(split, '{split}')}/*"
            if sum(name in endings for name in names) > len(names) / 2:
                return f"{place.replace(split, '{split}')}/*{Counter(endings.values()).most_common(1)[0][0]}"
        return ""

    def _inside(self, place: str) -> list[str]:
        return [path for path in self.paths if str(PurePosixPath(path).parent) == place]

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

    def number_form(self, numbers: Sequence[Any]) -> tuple[str, float]:
        """The form that makes image ids of whole numbers, such as ``{:012d}``, and the share of them that are there."""
        forms = {"{}": 0}
        for name in self.by_id:
            hit = re.fullmatch(r"(.*?)([0-9]{4,})", name)
            if hit:
                forms[f"{hit[1].replace('{', '').replace('}', '')}{{:0{len(hit[2])}d}}"] = 0
            if len(forms) > 20:
                break
        plain = [number for number in numbers if isinstance(number, int)]
        for form in forms:
            forms[form] = sum(form.format(number) in self.by_id for number in plain)
        best = max(forms, key=lambda form: forms[form])
        return best, forms[best] / max(1, len(numbers))


def _nearest(sources: tuple[str, ...], folders: list[str], here: str) -> Naming:
    """Of folders that all have every name, the one nearest to the table, or called after pictures."""

    def nearness(folder: str) -> tuple[int, bool]:
        pairs = zip(folder.split("/"), here.split("/"), strict=False)
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)), bool(_CALLED.search(folder))

    first, *others = sorted(folders, key=nearness, reverse=True)
    return Naming(sources, first, 1.0, tuple(others))


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
