"""One's own data with no class to write: JSON lines, JSON, CSV, and a folder of pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.files import index_images, inside, parse_json, read_lines, read_text
from vlcli.data.reader import Reader
from vlcli.data.readers import cells
from vlcli.data.readers.table import COLUMNS, Table
from vlcli.data.sample import Example
from vlcli.errors import DataError, shown


class JsonLines(Table):
    """One's own data: a JSON object a line, columns named by parameters.

    A column that a row lacks, or holds null in, is not used for that row: ``"text": null`` is an example without a
    sentence. ``image`` may hold a list of files, ``boxes`` a list of
    ``[x1, y1, x2, y2]`` in pixels, ``answers`` an object answer -> score, a list of people's answers (soft scores by
    VQA's rule) or one answer.

    Args:
        root: data root.
        split: fills ``{split}`` in the file's name.
        file: the file under the root; None: ``{split}.jsonl``.
        images: folder that image paths are relative to; "." for the root itself.
        id: column of the example's id, which no other row may have; without it, or with "", the row's number.
        image: column of the picture(s); a template such as ``dev-{identifier}-0.png`` makes a file name of columns, and
            a list names several columns or templates, one picture each.
        text: column of the sentence.
        label: column of the class: a number, or a word that is numbered (see ``labels``).
        box: column of the box that the sentence speaks of, ``[x1, y1, x2, y2]`` in pixels of the first picture;
            None: none.
        boxes: column of the first picture's boxes; without it they are those of the column ``box``.
        box_labels: column of their classes.
        answers: column of the answers.
        extra: further columns to keep as targets.
        labels: the words of the label column in the order of their numbers; None: all that occur, sorted.
        only: column -> value: only these rows are read, e.g. ``{split: train}``.
        types: of ``label``, ``answers`` and ``box_labels``: ``number`` (1, 1.0 and "1" are one class), ``text`` (each
            cell is what it is) or ``list``; by default numbers or lists where all cells of all splits are, else text.
        take: which images, see :mod:`vlcli.data.take`.
        limit: read only so many examples.
        encoding: of the file, as Python calls it: ``utf-8``, ``utf-16``, ``latin-1``.
    """

    usual_file: ClassVar[str] = "{split}.jsonl"

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        file: str | None = None,
        images: str = "images",
        id: str = COLUMNS["id"],
        image: str | list[str] = COLUMNS["image"],
        text: str = COLUMNS["text"],
        label: str = COLUMNS["label"],
        box: str | None = None,
        boxes: str = COLUMNS["boxes"],
        box_labels: str = COLUMNS["box_labels"],
        answers: str = COLUMNS["answers"],
        extra: list[str] = [],  # noqa: B006
        labels: list[str] | None = None,
        only: dict[str, str] = {},  # noqa: B006
        types: dict[str, str] = {},  # noqa: B006
        take: str | None = None,
        limit: int | None = None,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        columns = {
            "id": id,
            "text": text,
            "label": label,
            "boxes": boxes,
            "box_labels": box_labels,
            "answers": answers,
            **({} if box is None else {"box": box}),
        }
        self.set_up(file, image, columns, extra, labels, only, types, encoding)

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """The lines."""
        return read_lines(file, self.encoding)


class Json(JsonLines):
    """One's own data: a JSON document that is a list of objects, or holds one; columns named by parameters.

    The options are those of ``jsonl``; the file is ``{split}.json`` unless a recipe names another. Of an object at the
    top the first list of objects among its values is read; of an object of objects, its values.
    """

    usual_file: ClassVar[str] = "{split}.json"

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """The objects, with their place in the list."""
        content = parse_json(read_text(file, self.encoding), str(file))
        for place, row in enumerate(records_of(content, str(file))):
            if not isinstance(row, dict):
                raise DataError("An entry is no object.", where=f"{file}[{place}]", got=shown(row), expected="{...}")
            yield f"{file}[{place}]", row


class Csv(Table):
    """One's own data: a CSV table with a header, columns named by parameters.

    ``box`` and ``boxes`` are JSON; ``box_labels`` and ``answers`` are JSON lists or objects where all cells of the
    column are, else plain words.

    Args:
        root: data root.
        split: fills ``{split}`` in the file's name.
        file: the file under the root; None: ``{split}.csv``.
        images: folder that image paths are relative to; "." for the root itself.
        separator: between columns; "tab" for a tabulator.
        several: between the files of several pictures in one cell.
        id: column of the example's id, which no other row may have; without it, or with "", the row's number.
        image: column of the picture(s); a template such as ``dev-{identifier}-0.png`` makes a file name of columns, and
            a list names several columns or templates, one picture each.
        text: column of the sentence.
        label: column of the class: a number, or a word that is numbered (see ``labels``).
        box: column of the box that the sentence speaks of, ``[x1, y1, x2, y2]`` in pixels of the first picture;
            None: none.
        boxes: column of the first picture's boxes; without it they are those of the column ``box``.
        box_labels: column of their classes.
        answers: column of the answers.
        extra: further columns to keep as targets.
        labels: the words of the label column in the order of their numbers; None: all that occur, sorted.
        only: column -> value: only these rows are read, e.g. ``{split: train}``.
        types: of ``label``, ``answers`` and ``box_labels``: ``number`` (1, 1.0 and "1" are one class), ``text`` (each
            cell is what it is) or ``list``; by default numbers or lists where all cells of all splits are, else text.
        take: which images, see :mod:`vlcli.data.take`.
        limit: read only so many examples.
        encoding: of the file, as Python calls it: ``utf-8``, ``utf-16``, ``latin-1``.
    """

    usual_file: ClassVar[str] = "{split}.csv"
    cells_are_text: ClassVar[bool] = True

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        file: str | None = None,
        images: str = "images",
        separator: str = ",",
        several: str = ";",
        id: str = COLUMNS["id"],
        image: str | list[str] = COLUMNS["image"],
        text: str = COLUMNS["text"],
        label: str = COLUMNS["label"],
        box: str | None = None,
        boxes: str = COLUMNS["boxes"],
        box_labels: str = COLUMNS["box_labels"],
        answers: str = COLUMNS["answers"],
        extra: list[str] = [],  # noqa: B006
        labels: list[str] | None = None,
        only: dict[str, str] = {},  # noqa: B006
        types: dict[str, str] = {},  # noqa: B006
        take: str | None = None,
        limit: int | None = None,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        columns = {
            "id": id,
            "text": text,
            "label": label,
            "boxes": boxes,
            "box_labels": box_labels,
            "answers": answers,
            **({} if box is None else {"box": box}),
        }
        self.set_up(file, image, columns, extra, labels, only, types, encoding)
        self.separator, self.several = "\t" if separator == "tab" else separator, several

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """The lines below the header, empty cells left out."""
        table = csv.DictReader(io.StringIO(read_text(file, self.encoding)), delimiter=self.separator, strict=True)
        try:
            names = table.fieldnames or []
            row: Any = None
            for row in table:
                where = f"{file}:{table.line_num}"
                if None in row or any(cell is None for cell in row.values()):
                    raise DataError("The row does not fit the header.", where=where, expected=f"{len(names)} cells")
                yield where, self._cells(row)
            if row is None and names:  # in a wrong encoding, a whole table may look like one line
                self._check_columns(f"{file}:1", dict.fromkeys(names))
        except csv.Error as error:
            raise _malformed(f"{file}:{table.reader.line_num}", str(error)) from None

    def _cells(self, row: dict[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {name: cell if cell != "" else None for name, cell in row.items()}
        for name in ("box", "boxes"):
            if name in self.columns and isinstance(cell := found.get(self.columns[name]), str):
                found[self.columns[name]] = cells.parsed(cell)
        return found

    def _image_names(self, given: Any) -> list[Any]:
        return [name.strip() for name in given.split(self.several)] if isinstance(given, str) else []


def _malformed(where: str, reason: str) -> DataError:
    """What is wrong with a line of a CSV table."""
    if "field limit" not in reason:
        return DataError("The CSV is malformed.", where=where, got=reason)
    most = f"{csv.field_size_limit():,} characters"
    hint = "is a quotation mark left open in a line before? Else shorten the cell"
    return DataError("A cell of the CSV is too long.", where=where, got=f"more than {most}", hint=hint)


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


def records_of(content: Any, where: str) -> list[Any]:
    """The rows of a JSON document: a list, the first list of objects in an object, or an object's values.

    Raises:
        DataError: there are none.
    """
    if isinstance(content, list):
        return content
    if isinstance(content, dict):
        for value in content.values():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                return value
        if content and all(isinstance(value, dict) for value in content.values()):
            return list(content.values())
    raise DataError(
        "The JSON document holds no table.", where=where, got=type(content).__name__, expected="a list of objects"
    )
