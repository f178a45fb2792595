"""Gives readers the files, documents, tables and pictures of a folder, each parsed once."""

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from vlcli.data.files import first_object, grouped, is_picture_file, read_text, text_lines
from vlcli.data.recognition.lists import SUFFIXES, ListForm, form_of
from vlcli.data.recognition.pictures import Pictures
from vlcli.data.recognition.recognised import PART_WORDS, Recognised, part_in, part_of, parts_by
from vlcli.data.recognition.tables import MOST_BYTES, TableFile, encoding_of, read_table, reader_of
from vlcli.errors import DataError
from vlcli.files import walk
from vlcli.images.boxes import image_id

# Names of pictures that are tried to find the folder that they are relative to
SAMPLED = 5000


class Folder:
    """A folder that ``init`` looks at.

    Attributes:
        unread: why files could not be read, by name.
        claimed: the files that readers have recognised.
    """

    def __init__(self, root: Path, columns: Mapping[str, str] | None = None) -> None:
        self.root, self.columns = root, dict(columns or {})
        self.unread: dict[str, str] = {}
        self.claimed: set[str] = set()
        self._tables: dict[str, TableFile | None] = {}

    @cached_property
    def pictures(self) -> Pictures:
        return Pictures(self.root)

    @cached_property
    def every(self) -> list[str]:
        """Paths relative to the root of all files but pictures, hidden files and those of run folders."""
        files = []
        for folder, names in walk(self.root):
            inner = folder.relative_to(self.root)
            if "stage.json" not in names and not any(part.startswith(".") for part in inner.parts):
                files += [inner / name for name in names if not name.startswith(".")]
        return [file.as_posix() for file in files if not is_picture_file(file.name)]

    def files(self, *patterns: str) -> list[str]:
        """Return the files that no reader has claimed and whose names fit a pattern (``*.xml``), in any case."""
        left = [(name, Path(name).name.lower()) for name in self.every if name not in self.claimed]
        fits = re.compile("|".join(fnmatch.translate(one.lower()) for one in patterns)).match
        return [name for name, last in left if fits(last)]

    def table(self, name: str) -> TableFile | None:
        """Return a table or a JSON document; None: the file is neither, or cannot be read."""
        if name not in self._tables:
            beside = image_id(name) in self.pictures.by_id  # what is said of one picture
            form = None if beside else form_of(self.root / name, self.is_picture)
            self._tables[name] = self._read(name, form) if form or reader_of(name) else None
        return self._tables[name]

    def tables(self, *patterns: str) -> list[TableFile]:
        return [table for table in map(self.table, self.files(*patterns)) if table is not None]

    def documents(self, *patterns: str) -> list[tuple[str, Any]]:
        return [(self.name(table.path), table.document) for table in self.tables(*patterns) if table.reader == "json"]

    def document(self, name: str) -> Any:
        table = self.table(name) if name in self.every else None
        return None if table is None else table.document

    def text(self, name: str) -> str:
        """Read a text file in its encoding; empty where it cannot be read."""
        try:
            return read_text(self.root / name, encoding_of(self.root / name))
        except DataError as error:
            self._note(name, error)
            return ""

    def lines(self, name: str, most: int | None = None) -> list[str]:
        """Read the lines of a text file that are not blank, or the first ``most``; none where it is no text."""
        try:
            lines = text_lines(self.root / name, encoding_of(self.root / name) if most is None else "utf-8")
            return list(islice(filter(None, map(str.strip, lines)), most))
        except DataError:
            return []

    def with_images(self, record: Recognised, *names: Sequence[Any]) -> Recognised:
        """Set a record's option ``images``, or its question if fewer than half of the pictures are there.

        ``names`` are the same pictures' names in several forms, of which the one that fits most files counts.
        """
        beside = self.root / Path(record.files[0]).parent
        namings = [self.pictures.named_by("image", one[:SAMPLED], beside) for one in names]
        best = max(filter(None, namings), key=lambda one: one.share, default=None)
        if best is None:
            first = ", ".join(repr(str(name)) for name in names[0][:3])
            record.question = f"{record.where}: fewer than half of its pictures are in the folder (such as {first})"
        elif best.folder != "images":
            record.entry["images"] = best.folder
        return record

    def with_lists(self, record: Recognised, names: Iterable[str] = ()) -> Recognised:
        """Choose the parts of a data set by lists of its pictures, if there are any, beside its first file or below.

        Lists are text files named after parts, a picture a line; a table of pictures and parts; or a JSON document with
        a list for each part. Else the names of the pictures may begin with the part.
        """
        beside = Path(record.files[0]).parent.as_posix()
        lists: dict[str, str] = {}
        for name in (one for one in self.files() if beside == "." or one.startswith(f"{beside}/")):
            part = part_in(Path(name).name) if name.endswith(SUFFIXES) else ""
            if part and part not in lists and self._lists_pictures(name):
                lists[part] = name
        if not {"train"} < set(lists):
            others = (name for name in self.files() if name not in record.files)
            lists = next(filter(None, map(self.part_lists, others)), {})
        if {"train"} < set(lists):
            record.take_lists(lists)
        elif patterns := _parts_in(names):
            record.parts = {part: {"take": f"named:{pattern}"} for part, pattern in patterns.items()}
            record.reasons["parts"] = f"the names of the pictures say them: {', '.join(patterns.values())}"
        return record

    def part_lists(self, name: str) -> dict[str, str]:
        """Return ``FILE=WORD`` by part, where a table or a JSON document divides pictures by words for parts."""
        table = self.table(name)
        if table is None:
            return {}
        if isinstance(table.document, dict):
            lists = {word: some for word, some in table.document.items() if isinstance(some, list)}
            names = {word: list(map(str, some)) for word, some in lists.items() if not first_object(some)}
            words = {part_of(word): word for word in reversed(names) if part_of(word)}
            there = [self.is_picture(one) for word in words.values() for one in names[word][:SAMPLED]]
        elif len(table.columns) == 2:
            pictures, values = (list(map(str, table.values(column))) for column in table.columns)
            words = parts_by(values, f"{Path(name).stem} {table.columns[1]}")
            there = [self.is_picture(one) for one in pictures]
        else:
            return {}
        parts = {part: f"{name}={words[part]}" for part in PART_WORDS if part in words}
        return parts if 2 * sum(there) > len(there) else {}

    def _lists_pictures(self, name: str) -> bool:
        lines = list(filter(None, map(str.strip, self.text(name).splitlines()[:200])))
        there = sum(image_id(line) in self.pictures.by_id for line in lines)
        return there > len(lines) / 2 and not any(len(line.split()) > 1 for line in lines)

    def name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def claim(self, names: Iterable[str]) -> None:
        """Keep files from readers that are asked later."""
        self.claimed |= set(names)

    def is_picture(self, cell: str) -> bool:  # with or without its ending
        return image_id(cell) in self.pictures.by_id or cell in self.pictures.by_id

    def _read(self, name: str, form: ListForm | None) -> TableFile | None:
        path = self.root / name
        try:
            if path.stat().st_size > MOST_BYTES:
                raise DataError(f"larger than {MOST_BYTES >> 20} MB")
            return read_table(path, self.is_picture, form)
        except DataError as error:
            self._note(name, error)
            return None

    def _note(self, name: str, error: DataError) -> None:
        self.unread[name] = " ".join(filter(None, (error.what, error.got, error.hint and f"({error.hint})")))


def groups(folder: Folder, *names: str) -> list[tuple[str, list[str]]]:
    """Return each folder that holds files of all these names, the first of them unclaimed, and the files' paths."""
    homes = {home: [Path(home, name).as_posix() for name in names] for home in by_folder(folder.files(names[0]))}
    return [(home, files) for home, files in homes.items() if set(files) <= set(folder.every)]


def by_folder(names: Iterable[str]) -> dict[str, list[str]]:
    """Return files by their folder."""
    return grouped((str(PurePosixPath(name).parent), name) for name in names)


def _parts_in(names: Iterable[str]) -> dict[str, str]:
    hits = [re.match(r"([A-Za-z]+)[-_]", Path(name).name) for name in names]
    starts = {hit[0] for hit in hits if hit}
    parts = {part_of(start[:-1]): f"{start}*" for start in sorted(starts)}
    one_each = all(hits) and "" not in parts and len(parts) == len(starts)
    return parts if one_each and {"train"} < set(parts) else {}
