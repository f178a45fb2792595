"""One's own data with no class to write: JSON lines, CSV, and a folder of pictures."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.files import index_images, inside, read_lines, read_text
from vlcli.data.reader import Reader
from vlcli.data.readers import cells
from vlcli.data.sample import Example
from vlcli.data.texts import sentence
from vlcli.errors import DataError, shown
from vlcli.images.boxes import BoxList

COLUMNS = {
    "id": "id",
    "image": "image",
    "text": "text",
    "label": "label",
    "boxes": "boxes",
    "box_labels": "box_labels",
    "answers": "answers",
}
"""Column names that hold unless a recipe names others."""


class _Table(Reader):
    """What JSON lines and CSV share: rows in, examples out."""

    pictures_help: ClassVar[str] = "name the column that holds them (image=COLUMN), or their folder (images=FOLDER)"

    def _set_up(
        self, file: str, columns: dict[str, str], extra: list[str], labels: list[str] | None, only: dict[str, str]
    ) -> None:
        self.file, self.columns, self.extra, self.labels, self.only = file, columns, extra, labels, only
        self._words: list[str] = []
        self._box_words: list[str] = []
        self._boxes: dict[str, BoxList] = {}

    def files(self) -> list[Path]:
        """The table(s), each once."""
        return list(dict.fromkeys(self.first_file(self.file, ())))

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every row with its place."""
        raise NotImplementedError(f"{type(self).__name__} cannot read {file}")

    def read(self) -> list[Example]:
        """One example a row that ``only`` admits."""
        rows = [(where, row) for file in self.files() for where, row in self.rows(file)]
        if rows:
            self._check_columns(*rows[0])
        rows = [(where, row) for where, row in rows if all(str(row.get(k)) == v for k, v in self.only.items())]
        for name in ("label", "box_labels"):
            found = ((where, row.get(self.columns[name])) for where, row in rows)
            cells.check_labels(found, self.columns[name], several=name == "box_labels")
        self._words = self.labels or _words(row.get(self.columns["label"]) for _, row in rows)
        self._box_words = _words(word for _, row in rows for word in _listed(row.get(self.columns["box_labels"])))
        return [self._example(row, where, place) for place, (where, row) in enumerate(rows)]

    def first_examples(self, count: int) -> list[Example]:
        """Of the first rows that ``only`` admits, without their labels, whose words stand in all rows."""
        rows = itertools.chain.from_iterable(self.rows(file) for file in self.files())
        first = next(rows, None)
        if first is None:
            return []
        self._check_columns(*first)
        found: list[Example] = []
        for where, row in itertools.chain([first], itertools.islice(rows, 100 * count)):
            if len(found) == count:
                break
            if all(str(row.get(k)) == v for k, v in self.only.items()):
                unlabelled = {k: v for k, v in row.items() if k not in (self.columns["label"], self.columns["boxes"])}
                found.append(self._example({**dict.fromkeys(self.extra), **unlabelled}, where, len(found)))
        return found

    def boxes(self) -> dict[str, BoxList]:
        """The boxes column, by image id."""
        used = dict.fromkeys(name for example in self.examples() for name in example.images)
        return {name: self._boxes[name] for name in used if name in self._boxes}

    def label_names(self) -> list[str]:
        """The words of the label column, in the order of their numbers; empty where labels are numbers."""
        self.examples()
        return self._words

    def class_names(self) -> list[str]:
        """The words of the box-label column, in the order of their numbers."""
        self.examples()
        return self._box_words

    def _check_columns(self, where: str, row: dict[str, Any]) -> None:
        named = [name for key, name in self.columns.items() if name != COLUMNS[key]] + self.extra + list(self.only)
        absent = [name for name in named if name not in row]
        if absent or not ({self.columns["image"], self.columns["text"]} & set(row)):
            raise DataError(
                "The table lacks a column.",
                where=where,
                got=", ".join(map(str, row)),
                expected=", ".join(absent) or f"{self.columns['image']} or {self.columns['text']}",
                hint="name the columns, e.g. image=file text=caption",
            )

    def _example(self, row: dict[str, Any], where: str, place: int) -> Example:
        get: Callable[[str], Any] = lambda name: row.get(self.columns[name])  # noqa: E731
        names = self._image_names(get("image"))
        images = [self.picture(cells.word(name, where, self.columns["image"])) for name in names]
        text = self._text(row, where)
        if text is None and not images:
            raise DataError("The row has neither image nor text.", where=where, got=shown(row))
        targets: dict[str, Any] = {name: row[name] for name in self.extra}
        if get("label") is not None:
            targets["label"] = self._label(get("label"), where)
        if get("answers") is not None:
            targets |= cells.answers(get("answers"), where)
        if get("boxes") is not None and images:
            self._boxes[images[0]] = self._box_list(get("boxes"), get("box_labels"), where)
        key = get("id")
        name = str(place) if key is None else cells.word(key, where, self.columns["id"])
        return Example(name, text, images, targets=targets)

    def _text(self, row: dict[str, Any], where: str) -> str | None:
        """The sentence; None where the field is missing, null or an empty cell (NaN, a number or a list is a fault)."""
        column = self.columns["text"]
        given = row.get(column)
        return None if given is None else sentence(given, where, column)

    def _image_names(self, given: Any) -> list[Any]:
        return [name for name in _listed(given) if name not in ("", None)]

    def _label(self, given: Any, where: str) -> int | float:
        if not self._words:
            return int(given) if isinstance(given, bool) else given
        word = str(given)
        if word not in self._words:
            raise DataError("The label is unknown.", where=where, got=word, expected=", ".join(self._words[:20]))
        return self._words.index(word)

    def _box_list(self, boxes: Any, labels: Any, where: str) -> BoxList:
        return cells.box_list(boxes, _listed(labels), where, self._box_words)


class JsonLines(_Table):
    """One's own data: a JSON object a line, columns named by parameters.

    A column that a row lacks, or holds null in, is not used for that row: ``"text": null`` is an example without a
    sentence. ``image`` may hold a list of files, ``boxes`` a list of
    ``[x1, y1, x2, y2]`` in pixels, ``answers`` an object answer -> score, a list of people's answers (soft scores by
    VQA's rule) or one answer.

    Args:
        root: data root.
        split: fills ``{split}`` in the file's name.
        file: the file under the root.
        images: folder that image paths are relative to; "." for the root itself.
        id: column of the example's id; without it the row's number.
        image: column of the picture(s).
        text: column of the sentence.
        label: column of the class: a number, or a word that is numbered (see ``labels``).
        boxes: column of the first picture's boxes.
        box_labels: column of their classes.
        answers: column of the answers.
        extra: further columns to keep as targets.
        labels: the words of the label column in the order of their numbers; None: all that occur, sorted.
        only: column -> value: only these rows are read, e.g. ``{split: train}``.
        take: which images, see :mod:`vlcli.data.take`.
        limit: read only so many examples.
    """

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        file: str = "{split}.jsonl",
        images: str = "images",
        id: str = COLUMNS["id"],
        image: str = COLUMNS["image"],
        text: str = COLUMNS["text"],
        label: str = COLUMNS["label"],
        boxes: str = COLUMNS["boxes"],
        box_labels: str = COLUMNS["box_labels"],
        answers: str = COLUMNS["answers"],
        extra: list[str] = [],  # noqa: B006
        labels: list[str] | None = None,
        only: dict[str, str] = {},  # noqa: B006
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        columns = {
            "id": id,
            "image": image,
            "text": text,
            "label": label,
            "boxes": boxes,
            "box_labels": box_labels,
            "answers": answers,
        }
        self._set_up(file, columns, extra, labels, only)

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """The lines."""
        return read_lines(file)


class Csv(_Table):
    """One's own data: a CSV table with a header, columns named by parameters.

    Numbers are recognised in the label column; ``boxes``, ``box_labels`` and ``answers`` are JSON, or plain words.

    Args:
        root: data root.
        split: fills ``{split}`` in the file's name.
        file: the file under the root.
        images: folder that image paths are relative to; "." for the root itself.
        separator: between columns; "tab" for a tabulator.
        several: between the files of several pictures in one cell.
        id: column of the example's id; without it the row's number.
        image: column of the picture(s).
        text: column of the sentence.
        label: column of the class: a number, or a word that is numbered (see ``labels``).
        boxes: column of the first picture's boxes.
        box_labels: column of their classes.
        answers: column of the answers.
        extra: further columns to keep as targets.
        labels: the words of the label column in the order of their numbers; None: all that occur, sorted.
        only: column -> value: only these rows are read, e.g. ``{split: train}``.
        take: which images, see :mod:`vlcli.data.take`.
        limit: read only so many examples.
    """

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        file: str = "{split}.csv",
        images: str = "images",
        separator: str = ",",
        several: str = ";",
        id: str = COLUMNS["id"],
        image: str = COLUMNS["image"],
        text: str = COLUMNS["text"],
        label: str = COLUMNS["label"],
        boxes: str = COLUMNS["boxes"],
        box_labels: str = COLUMNS["box_labels"],
        answers: str = COLUMNS["answers"],
        extra: list[str] = [],  # noqa: B006
        labels: list[str] | None = None,
        only: dict[str, str] = {},  # noqa: B006
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        columns = {
            "id": id,
            "image": image,
            "text": text,
            "label": label,
            "boxes": boxes,
            "box_labels": box_labels,
            "answers": answers,
        }
        self._set_up(file, columns, extra, labels, only)
        self.separator, self.several = "\t" if separator == "tab" else separator, several

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """The lines below the header, empty cells left out."""
        table = csv.DictReader(io.StringIO(read_text(file)), delimiter=self.separator, strict=True)
        names = table.fieldnames or []
        try:
            for row in table:
                where = f"{file}:{table.line_num}"
                if None in row or any(cell is None for cell in row.values()):
                    raise DataError("The row does not fit the header.", where=where, expected=f"{len(names)} cells")
                yield where, self._cells(row)
        except csv.Error as error:
            raise DataError("The CSV is malformed.", where=f"{file}:{table.line_num}", got=str(error)) from None

    def _cells(self, row: dict[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {name: cell if cell != "" else None for name, cell in row.items()}
        for name in ("boxes", "box_labels", "answers"):
            if isinstance(cell := found.get(self.columns[name]), str):
                found[self.columns[name]] = cells.parsed(cell)
        label = found.get(self.columns["label"])
        if isinstance(label, str) and label.lstrip("-").isdigit() and len(label) < 20:
            found[self.columns["label"]] = int(label)
        return found

    def _image_names(self, given: Any) -> list[Any]:
        return [name.strip() for name in given.split(self.several)] if isinstance(given, str) else []


class ImageFolder(Reader):
    """A folder of pictures, subfolders included, without text: for extraction, or classes by subfolder.

    Args:
        root: data root.
        split: fills ``{split}`` in ``images``.
        images: the folder under the root.
        label: number the first subfolder as the class (``ImageNet``'s layout), sorted by name.
        take: which images, see :mod:`vlcli.data.take`.
        limit: read only so many.
    """

    paper: ClassVar[str] = ""

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        images: str = "images",
        label: bool = False,
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.folders = [inside(self.root, images.replace("{split}", name)) for name in self.split_names]
        self.folders, self.with_label = list(dict.fromkeys(self.folders)), label
        self._names: list[str] = []

    def files(self) -> list[Path]:
        """None: there is no annotation file."""
        return []

    def require(self) -> None:
        """Raise a DataError where the folder is missing."""
        for folder in self.folders:
            if not folder.is_dir():
                hint = "point `root` at the folder that holds it, or name it: images=FOLDER"
                raise DataError("The folder of pictures is missing.", where=str(folder), hint=hint)

    def read(self) -> list[Example]:
        """One example a picture, sorted by path."""
        paths = [(folder, path) for folder in self.folders for found in index_images(folder).values() for path in found]
        paths.sort(key=lambda pair: str(pair[1]))
        self._names = sorted({_class_of(*pair) for pair in paths}) if self.with_label else []
        return [self._example(*pair) for pair in paths]

    def label_names(self) -> list[str]:
        """The subfolders' names."""
        self.examples()
        return self._names

    def _example(self, folder: Path, path: Path) -> Example:
        name = self.picture(str(path.absolute()))
        targets = {"label": self._names.index(_class_of(folder, path))} if self.with_label else {}
        return Example(name, None, [name], targets=targets)


def _class_of(folder: Path, path: Path) -> str:
    parts = path.relative_to(folder).parts
    if len(parts) < 2:
        raise DataError(
            "A picture lies in no subfolder, so it has no class.", where=str(path), expected=f"{folder}/CLASS/FILE"
        )
    return parts[0]


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [] if given is None else [given]


def _words(values: Any) -> list[str]:
    """The words that must be numbered: none where every value is a number."""
    found = [item for item in values if item is not None]
    return sorted({str(item) for item in found}) if any(isinstance(item, str) for item in found) else []
