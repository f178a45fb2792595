"""One's own data with no class to write: JSON lines, JSON, CSV, and a folder of pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from vlcli.data.files import as_object, index_images, inside, parse_json, parsed, read_lines, read_text, records_of
from vlcli.data.reader import Reader
from vlcli.data.readers.table import Table
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.parts import parts_of
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.errors import DataError, shown
from vlcli.images.boxes import image_id


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
        text: column of the sentence; a list of columns gives an example for each.
        label: column of the class: a number, or a word that is numbered (see ``labels``). A list of columns gives a row
            several labels (task ``multi-label``): each column says of one class whether the row has it (0 or 1), or,
            ``[COLUMN]``, one column holds the classes' names, as a list or as words separated by ";".
        box: column of the box that the sentence speaks of, ``[x1, y1, x2, y2]`` in pixels of the first picture;
            None: none.
        boxes: column of the first picture's boxes; without it they are those of the column ``box``.
        box_labels: column of their classes.
        answers: column of the answers.
        choices: column of the choices of a question (task ``multiple-choice``), as a list; None: none.
        correct: column of the right choice: its place, counted from 0, or the choice itself.
        extra: further columns to keep as targets.
        labels: the words of the label column in the order of their numbers, or a file with one of them a line, which
            may be numbered; None: all that occur, sorted.
        only: column -> value: only these rows are read, e.g. ``{split: train}``.
        types: of ``label``, ``answers`` and ``box_labels``: ``number`` (1, 1.0 and "1" are one class), ``text`` (each
            cell is what it is) or ``list``; by default numbers or lists where all cells of all splits are, else text.
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
        encoding: of the file, as Python calls it: ``utf-8``, ``utf-16``, ``latin-1``.
        sentences: what stands between several sentences in one cell, such as "|"; each becomes an example of its own.
            A list of sentences needs none.
        language: of the answers: ``english`` ones are spelt by VQA's rules (digits for number words, no articles),
            ``other`` ones in lower case.
    """

    usual_file: ClassVar[str] = "{split}.jsonl"
    format: ClassVar[str] = "jsonl"

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """The lines."""
        return read_lines(file, self.encoding)


class Json(JsonLines):
    """One's own data: a JSON document that is a list of objects, or holds one; columns named by parameters.

    The options are those of ``jsonl``; the file is ``{split}.json`` unless a recipe names another. Of an object at the
    top the first list of objects among its values is read; of an object of objects, its values. Rows that are lists
    have the columns ``column1``, ``column2`` and so on.
    """

    usual_file: ClassVar[str] = "{split}.json"
    format: ClassVar[str] = "json"

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """The objects, with their place in the list."""
        content = parse_json(read_text(file, self.encoding), str(file))
        for place, row in enumerate(map(as_object, records_of(content, str(file)))):
            if not isinstance(row, dict):
                raise DataError("An entry is no object.", where=f"{file}[{place}]", got=shown(row), expected="{...}")
            yield f"{file}[{place}]", row


class Csv(Table):
    """One's own data: a CSV table with a header, columns named by parameters.

    ``box``, ``boxes`` and ``choices`` are JSON; ``box_labels`` and ``answers`` are JSON lists or objects where all
    cells of the column are, else plain words.

    Args:
        root: data root.
        separator: between columns; "tab" for a tabulator, "space" for any number of blanks, where the first column may
            hold blanks too (``my dog.jpg 3``).
        several: between the files of several pictures, or the names of several labels, in one cell.
        header: names of the columns of a file that has no header, such as ``[image, label]``.
        options: those of ``jsonl``.
    """

    usual_file: ClassVar[str] = "{split}.csv"
    cells_are_text: ClassVar[bool] = True
    format: ClassVar[str] = "csv"

    def __init__(
        self,
        root: Path,
        *,
        separator: str = ",",
        several: str = ";",
        header: list[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        self.separator, self.several = {"tab": "\t", "space": " "}.get(separator, separator), several
        self.header = header

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """The lines below the header, empty cells left out."""
        names, empty = self.header, True
        for number, line in self.lines(file):
            if names is None:
                names = line
                continue
            empty = False
            if len(line) != len(names):
                expected = f"{len(names)} cells"
                raise DataError("The row does not fit the header.", where=f"{file}:{number}", expected=expected)
            yield f"{file}:{number}", self._cells(dict(zip(names, line, strict=True)))
        if empty and names:  # in a wrong encoding, a whole table may look like one line
            self._check_columns(f"{file}:1", dict.fromkeys(names))

    def lines(self, file: Path) -> Iterator[tuple[int, list[str]]]:
        """The lines, header included, as cells, each with its number; blank lines are passed over.

        Raises:
            DataError: the file is malformed, or a spreadsheet.
        """
        refuse_spreadsheet(file)
        text = read_text(file, self.encoding)
        if self.separator == " ":
            splits = -1 if self.header is None else len(self.header) - 1
            lines = enumerate(text.split("\n"), 1)
            yield from ((number, line.strip().rsplit(None, splits)) for number, line in lines if line.strip())
            return
        reader = csv.reader(io.StringIO(text), delimiter=self.separator, strict=True)
        try:
            yield from ((reader.line_num, line) for line in reader if line)
        except csv.Error as error:
            raise _malformed(f"{file}:{reader.line_num}", str(error)) from None

    def _cells(self, row: dict[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {name: cell if cell != "" else None for name, cell in row.items()}
        for name in ("box", "boxes", "choices"):
            if name in self.columns and isinstance(cell := found.get(self.columns[name]), str):
                found[self.columns[name]] = parsed(cell)
        text = found.get(self.columns["text"])
        if isinstance(text, str) and text.startswith("[") and isinstance(several := parsed(text), list):
            found[self.columns["text"]] = several
        return found

    def _image_names(self, given: Any) -> list[Any]:
        return [name.strip() for name in given.split(self.several)] if isinstance(given, str) else []


class MetadataFolder(Csv):
    """Pictures with a table beside them: Hugging Face's ``imagefolder`` with metadata.jsonl or metadata.csv.

    The file names of pictures are relative to the table. Pictures that it does not name are not read.

    Args:
        root: data root.
        image: column of the file names.
        options: those of ``csv``; the file is ``{split}/metadata.jsonl`` or ``.csv``, or one without the folder.
    """

    usual_file: ClassVar[str] = ""
    usual: ClassVar[tuple[str, ...]] = tuple(
        f"{folder}metadata{suffix}" for folder in ("{split}/", "data/{split}/", "") for suffix in (".jsonl", ".csv")
    )

    def __init__(self, root: Path, *, image: str | list[str] = "file_name", **options: Any) -> None:
        super().__init__(root, image=image, **options)

    def tables(self) -> list[Path]:
        """The table of each split."""
        return list(dict.fromkeys(self.first_file(self.file or None, self.usual)))

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """The rows, with paths of pictures in place of their names."""
        rows = super().rows(file) if file.suffix == ".csv" else read_lines(file, self.encoding)
        for where, row in rows:
            names = {name: row[name] for name in self.sources if isinstance(row.get(name), str)}
            yield where, row | {name: str(inside(file.parent, given).absolute()) for name, given in names.items()}


def refuse_spreadsheet(file: Path) -> None:
    """Refuses a workbook where a text file is expected, and kinds of workbooks that no reader reads.

    Raises:
        DataError: it is one; the message says what to do.
    """
    kind = file.suffix.lower()
    if kind in (".xlsx", ".xlsm"):
        hint = "read it as a spreadsheet: {name: xlsx, file: " + file.name + "}"
    elif kind in (".xls", ".xlsb", ".ods", ".numbers"):
        hint = "save it as .xlsx or as CSV in the program that wrote it"
    else:
        return
    raise DataError("The file is a spreadsheet, not text.", where=str(file), got=kind, hint=hint)


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
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many.
    """

    paper: ClassVar[str] = ""
    recognise_order: ClassVar[int] = 2

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """A folder of pictures for each class, below folders for the parts or not."""
        pictures = folder.pictures
        base = pictures.folder
        if base in pictures.folders:
            return []
        paths = [Path(one).relative_to(base).parts for one in pictures.folders]
        names = sorted({path[0] for path in paths})
        parts = parts_of(names)
        classes = {path[1] if len(path) > 1 else "" for path in paths} if parts else set(names)
        if len(classes) < 2 or "" in classes:
            return []
        images = str(PurePosixPath(base, "{split}")) if parts else base
        entry = {"name": "folder", "images": images, "label": True}
        title = f"folders of pictures in {base}" if parts else f"{len(names)} folders of pictures in {base}"
        columns = {"image": "file", "label": "folder"}
        reasons = {"parts": "the folders are named after the parts"}
        return [Recognised("labels", entry, [], columns, parts, reasons, title=title)]

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
        name = self.note(image_id(path), str(path.absolute()))
        targets = {"label": self._names.index(_class_of(folder, path))} if self.with_label else {}
        return Example(name, None, [name], targets=targets)


def _class_of(folder: Path, path: Path) -> str:
    parts = path.relative_to(folder).parts
    if len(parts) < 2:
        raise DataError(
            "A picture lies in no subfolder, so it has no class.", where=str(path), expected=f"{folder}/CLASS/FILE"
        )
    return parts[0]
