"""Indexes the pictures of a folder, and finds those that a column of a table names."""

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from vlcli.data.files import index_images, is_picture_file
from vlcli.data.picture_index import AmbiguousNameError, PictureIndex
from vlcli.data.recognition.recognised import part_in
from vlcli.images.files import BadImageError, read_size

_SAMPLE = 40
# How far a name that several files fit differs from them: more than all names that one file fits.
_AMBIGUOUS = 10**9
_CALLED = re.compile(r"(image|img|photo|foto|picture|jpe?g)s?(images)?\Z", re.IGNORECASE)
_FEW_FOLDERS = 20
# Rows in which two columns are tried together, and the columns, of which a table of pixels has hundreds.
_PAIRED, _MOST_COLUMNS = 200, 30


def median_size(paths: Iterable[Path]) -> tuple[int, int]:
    """Return median width and height of pictures in pixels; 0, 0 where none can be read."""
    sizes = []
    for path in paths:
        with suppress(BadImageError):
            sizes.append(read_size(path))
    high, wide = (sorted(side)[len(sizes) // 2] for side in zip(*sizes, strict=True)) if sizes else (0, 0)
    return wide, high


class Naming(NamedTuple):
    """How a column names pictures."""

    sources: tuple[str, ...]  # the column, or templates of file names
    folder: str  # to which the names are relative, itself relative to the root
    share: float  # of the values whose picture is there
    also: tuple[str, ...] = ()  # other folders with as many of the pictures
    ambiguous: bool = False  # whether several files fit a value


class Pictures:
    """The pictures under a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.by_id = index_images(root)
        self._indices: dict[str, PictureIndex] = {}

    def __len__(self) -> int:
        return sum(map(len, self.by_id.values()))

    @cached_property
    def paths(self) -> set[str]:
        return {path.relative_to(self.root).as_posix() for paths in self.by_id.values() for path in paths}

    @cached_property
    def folders(self) -> list[str]:  # those with most pictures first
        counts = Counter(str(PurePosixPath(path).parent) for path in self.paths)
        return sorted(counts, key=lambda folder: (-counts[folder], folder))

    @cached_property
    def folder(self) -> str:  # the innermost one that holds all pictures
        return "." if "." in self.folders or not self.folders else os.path.commonpath(self.folders) or "."

    def ending(self, name: str) -> str:
        """Return the longest end of a path of another machine that is a picture's path; else the path."""
        parts = PurePosixPath(name).parts
        ends = ("/".join(parts[start:]) for start in range(len(parts)))
        return next((end for end in ends if end in self.paths), name)

    def named_by(
        self, column: str, values: Sequence[Any], beside: Path, part: str = "", by_number: bool = False
    ) -> Naming | None:
        """Return how the values of a column name pictures, as readers resolve them; None where fewer than half do.

        Args:
            values: names, paths, ids, or lists of them.
            beside: the folder of the table, which paths may be relative to.
            part: the part that the table's name says; its folder is meant where several have the names.
            by_number: whether the number that ends a file's name is enough.
        """
        names = [name.lstrip("/") for value in values for name in _names(value)]  # as readers do
        if not names:
            return None
        here = os.path.relpath(beside, self.root).replace(os.sep, "/")
        usual = dict.fromkeys((".", self.folder, here))
        exact = {
            folder: sum(os.path.normpath(PurePosixPath(folder, name)) in self.paths for name in names)
            for folder in dict.fromkeys((*usual, *self.folders[:50]))
        }
        whole = [folder for folder, count in exact.items() if count == len(names)]
        if whole:
            parts = {folder: folder.split("/") for folder in (here, *whole)}
            near = {one: len(os.path.commonprefix([parts[here], parts[one]])) for one in whole}  # noqa: RUF071 (of parts)
            first, *others = sorted(whole, key=lambda one: (near[one], bool(_CALLED.search(one))), reverse=True)
            return Naming((column,), first, 1.0, tuple(others))
        tried = dict.fromkeys((*usual, max(exact, key=lambda folder: exact[folder])))
        matches = {folder: self._matches(folder, names, by_number) for folder in tried}
        if max(matches.values())[1] <= -_AMBIGUOUS:  # train.csv names pictures of train/
            of_part = [folder for folder in self.folders[:_FEW_FOLDERS] if part and part_in(folder) == part]
            matches |= {folder: self._matches(folder, names, by_number) for folder in of_part}
        best = max(matches, key=lambda folder: matches[folder])
        share, ambiguous = matches[best][0] / len(names), matches[best][1] <= -_AMBIGUOUS
        return Naming((column,), best, share, ambiguous=ambiguous) if share >= 0.5 else None

    def by_two_columns(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], beside: Path) -> Naming | None:
        """Return how a column of folders and one of names name pictures together; None where fewer than half do."""
        plain = (
            {name: row[name] for name in columns if isinstance(row.get(name), str | int)} for row in rows[:_PAIRED]
        )
        cells = [{name: str(cell) for name, cell in row.items() if str(cell).strip()} for row in plain]
        namings = []
        for pair in itertools.permutations(columns[:_MOST_COLUMNS], 2):
            names = ["/".join(row[column] for column in pair) for row in cells if {*pair} <= row.keys()]
            if len(names) > len(cells) / 2:
                namings.append(self.named_by("/".join(f"{{{column}}}" for column in pair), names, beside))
        return max(filter(None, namings), key=lambda one: one.share, default=None)

    def _matches(self, folder: str, names: list[str], by_number: bool) -> tuple[int, int]:
        # how many names match a file under the folder, and minus the sum of their distances from the files' names
        if folder not in self._indices:
            self._indices[folder] = PictureIndex(self.root / folder)
        distances = []
        for name in names:
            try:
                match = self._indices[folder].find(name, by_number)
                distances += [] if match is None else [match.distance]
            except AmbiguousNameError:  # the parts may tell which is meant; else readers refuse the name
                distances.append(_AMBIGUOUS)
        return len(distances), -sum(distances)

    def place_of(self, names: Sequence[str], split: str) -> str:
        """Return the pattern (``{split}/images/*.png``) of a part's folder with most of the names; empty without any.

        Where names lack endings, the pattern has the usual one.
        """
        depth = names[0].count("/")  # folders in the names
        homes = dict.fromkeys("/".join(one.split("/")[: one.count("/") + 1 - depth]) for one in self.folders)
        for folder in (one for one in homes if split in one):
            inside = [path[len(folder) + 1 :] for path in self.paths if path.startswith(f"{folder}/")]
            usual = Counter(PurePosixPath(path).suffix for path in inside).most_common(1)[0][0]
            for known, ending in ((set(inside), ""), ({path.rpartition(".")[0] for path in inside}, usual)):
                if sum(name in known for name in names) > len(names) / 2:
                    return f"{folder.replace(split, '{split}')}/*{ending}"
        return ""

    def by_template(self, column: str, values: Sequence[Any]) -> Naming | None:
        """Return templates of file names that hold a column's values, one for each picture of a row."""
        texts = [str(value) for value in values if isinstance(value, str | int)]
        sample = list(dict.fromkeys(text.rpartition(".")[0] if is_picture_file(text) else text for text in texts))
        sample = [value for value in sample if re.fullmatch(r"[\w.-]{1,80}", value)]
        sample = sample[:: max(1, len(sample) // _SAMPLE)][:_SAMPLE]
        if len(sample) < 3:
            return None
        votes = Counter(template for value in sample for template in self._templates(column, value))
        kept = sorted(template for template, count in votes.items() if count >= 0.8 * len(sample))
        share = min((votes[template] / len(sample) for template in kept), default=0.0)
        return Naming(tuple(kept), self.folder, share) if 1 <= len(kept) <= 2 else None

    def _templates(self, column: str, value: str) -> set[str]:
        digit = value.isdigit()
        pattern = re.compile(rf"(?<![0-9])(0*){re.escape(value)}(?![0-9])" if digit else f"(){re.escape(value)}")
        templates = set()
        for name, paths in self.by_id.items():
            if hit := pattern.search(name):
                part = f"{{{column}:0{len(hit[1]) + len(value)}}}" if digit and hit[1] else f"{{{column}}}"
                templates.add(f"{name[: hit.start()]}{part}{name[hit.end() :]}{paths[0].suffix}")
        return templates

    def number_form(self, numbers: Sequence[Any]) -> tuple[str, float]:
        """Return the format that makes image ids of numbers, such as ``{:012d}``, and the share that are there."""
        hits = filter(None, (re.fullmatch(r"(.*?)([0-9]{4,})", name) for name in self.by_id))
        forms = dict.fromkeys(f"{re.sub('[{}]', '', hit[1])}{{:0{len(hit[2])}d}}" for hit in hits)
        plain = [number for number in numbers if isinstance(number, int)]
        counts = {
            form: sum(form.format(number) in self.by_id for number in plain)
            for form in ("{}", *itertools.islice(forms, 20))
        }
        best = max(counts, key=lambda form: counts[form])
        return best, counts[best] / max(1, len(numbers))


def _names(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(item) for item in value if isinstance(item, str | int)]
    if isinstance(value, dict):
        return [path] if isinstance(path := value.get("path"), str) else []
    if isinstance(value, str):
        return [name.strip() for name in value.split(";") if name.strip()]
    return [str(value)] if isinstance(value, int) and not isinstance(value, bool) else []
