"""One's own data with no class to write: JSON lines, JSON, CSV, Parquet and Arrow."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data import files
from vlcli.data.miniature import PICTURES, Miniature
from vlcli.data.plain_pickle import load_plain
from vlcli.data.readers import cells
from vlcli.data.readers.table import Table
from vlcli.data.recognition.lists import SPACE, cell_lines, fitting_rows
from vlcli.data.sheets import INSTALL, refuse_spreadsheet, sheet_lines
from vlcli.errors import DataError, shown
from vlcli.plain import as_list, comma_list


class JsonLines(Table):
    """One's own data: a JSON object a line, columns named by parameters.

    A column that is absent or null is not used for that row: ``"text": null`` is an example without a sentence.
    ``image`` may hold a list of files, ``boxes`` a list of ``[x1, y1, x2, y2]`` in pixels, ``answers`` an object
    answer -> score, a list of people's answers (soft scores by VQA's rule) or one answer.

    Args:
        file: the file under the root; None: ``{split}.jsonl``.
        each: column of lists of objects, such as ``qa_pairs``: each object is a row, with the other columns. Several
            columns, such as ``[questions, answers]``, hold lists of one length, whose entries at a place are a row.
            Turns of a conversation (LLaVA's, chat templates') are rows with ``question`` and ``answer``.
    """

    usual: ClassVar[tuple[str, ...]] = ("{split}.jsonl",)
    format: ClassVar[str] = "jsonl"

    def __init__(self, root: Path, *, each: str | list[str] | None = None, **options: Any) -> None:
        super().__init__(root, **options)
        self.each = each
        self._without_rows: set[str] = set()

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        for where, row in self.objects(file):
            inner = files.rows_inside(row, self.each, where) if self.each else [row]
            if not inner:
                self._without_rows.add(where)
                self.left_out[f"entries without {comma_list(as_list(self.each), 4)}"] = len(self._without_rows)
            yield from ((where, one) for one in inner)

    def write_miniature(self, miniature: Miniature) -> None:  # a question, an answer and a class in every row
        for split, file in zip(self.split_names, self.first_file(self.file, self.usual), strict=True):
            rows = [self._small_row(miniature, split, number) for number in miniature.numbers(str(file), 4 * PICTURES)]
            miniature.write(file, iter(rows) if self.format == "jsonl" else rows)

    def _small_row(self, miniature: Miniature, split: str, number: int) -> dict[str, Any]:
        row: dict[str, Any] = {self.columns["text"]: miniature.question(number), self.columns["label"]: number % 2}
        row[self.columns["answers"]] = miniature.answer(number)
        for source in self.sources:
            is_template, fields = cells.is_template(source), dict.fromkeys(cells.fields_of(source), number)
            name = cells.filled(source, fields | {"split": split}, "") if is_template else f"{number}.png"
            miniature.picture(self.image_folder / name)
            row |= {field: number for field in fields if field != "split"} if is_template else {source: name}
        return row

    def objects(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the objects of a file, each with its place; called by :meth:`rows`."""
        return files.read_lines(file, self.encoding)


class Json(JsonLines):
    """One's own data: a JSON document that is a list of objects, or holds one; columns named by parameters.

    Of an object of objects, the values are rows; of an object of lists of objects, entries of all lists if they have
    the same fields, else of the first. The column ``key`` is the name of the object or list. Rows that are lists have
    the columns ``column1``, ``column2`` and so on.

    Args:
        file: the file under the root; None: ``{split}.json``.
    """

    usual: ClassVar[tuple[str, ...]] = ("{split}.json",)
    format: ClassVar[str] = "json"

    def objects(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, row in enumerate(map(files.as_object, files.records_of(self.content(file), str(file)))):
            if not isinstance(row, dict):
                where = f"{file}[{number}]"
                raise DataError("An entry is no JSON object.", where=where, got=shown(row), expected="{...}")
            yield f"{file}[{number}]", row

    def content(self, file: Path) -> Any:
        """Return the document in a file; called by :meth:`objects`."""
        return files.parse_json(files.read_text(file, self.encoding), str(file))


class Csv(Table):
    """One's own data: a CSV table with a header, columns named by parameters.

    ``box``, ``boxes`` and ``choices`` are JSON; ``box_labels`` and ``answers`` are JSON lists or objects if all cells
    are, else words.

    Args:
        file: the file under the root; None: ``{split}.csv``.
        separator: between columns; "tab" for a tabulator, "space" for any number of blanks, where the first column may
            hold blanks too (``my dog.jpg 3``), "first-space" for those behind the picture's name (``0034 Boeing 707``).
        several: between the files of several pictures, or the names of several labels, in one cell.
        header: names of the columns of a file that has no header, such as ``[image, label]``.
        skip: lines before the first row of such a file.
    """

    usual: ClassVar[tuple[str, ...]] = ("{split}.csv",)
    cells_are_text: ClassVar[bool] = True
    format: ClassVar[str] = "csv"

    def __init__(
        self,
        root: Path,
        *,
        separator: str = ",",
        several: str = ";",
        header: list[str] | None = None,
        skip: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        self.separator = {"tab": "\t", " ": SPACE}.get(separator, separator)
        self.several, self.header, self.skip = several, header, skip

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        lines = (line for line in self.lines(file) if line[0] > self.skip)
        names = self.header or [name.strip() for name in next(lines, (1, []))[1]]
        empty = True
        for where, row in fitting_rows(lines, names, str(file)):
            empty = False
            yield where, self._cells(row)
        if empty and names:  # in a wrong encoding, a whole table may look like one line
            self._check_columns(f"{file}:1", dict.fromkeys(names))

    def lines(self, file: Path) -> Iterator[tuple[int, list[str]]]:
        """Yield the lines that are not blank as cells, header included, with their numbers; called by :meth:`rows`."""
        refuse_spreadsheet(file)
        return cell_lines(files.read_text(file, self.encoding), self.separator, len(self.header or ()), str(file))

    def _cells(self, row: dict[str, str]) -> dict[str, Any]:
        filled: dict[str, Any] = {name: cell if cell != "" else None for name, cell in row.items()}
        for column in (self.columns[role] for role in ("box", "boxes", "choices") if role in self.columns):
            if isinstance(cell := filled.get(column), str):
                filled[column] = files.parsed(cell)
        text = filled.get(self.columns["text"])
        if isinstance(text, str) and text.startswith("[") and isinstance(several := files.parsed(text), list):
            filled[self.columns["text"]] = several
        return filled

    def _image_names(self, cell: Any) -> list[Any]:
        return [name.strip() for name in cell.split(self.several)] if isinstance(cell, str) else []


class MetadataFolder(Csv):
    """Pictures with a table beside them: Hugging Face's ``imagefolder`` with metadata.jsonl or metadata.csv.

    File names are relative to the table; only pictures that it names are read.

    Args:
        file: the table under the root; None: ``{split}/metadata.jsonl`` or ``.csv``, or one without the folder.
        image: column of the file names.
    """

    usual: ClassVar[tuple[str, ...]] = tuple(
        f"{folder}metadata{suffix}" for folder in ("{split}/", "data/{split}/", "") for suffix in (".jsonl", ".csv")
    )

    def __init__(self, root: Path, *, image: str | list[str] = "file_name", **options: Any) -> None:
        super().__init__(root, image=image, beside=True, **options)

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        yield from super().rows(file) if file.suffix == ".csv" else files.read_lines(file, self.encoding)


class Xlsx(Csv):
    """One's own data: a sheet of an XLSX workbook with a header, read as the same table in CSV is (needs openpyxl).

    Whole numbers have no decimal point, dates are written as in ISO 8601, and of formulas the stored values count.

    Args:
        file: the workbook under the root; None: ``{split}.xlsx``.
        sheet: name of the sheet; None: the first.
    """

    usual: ClassVar[tuple[str, ...]] = ("{split}.xlsx",)
    packages: ClassVar[tuple[str, ...]] = ("openpyxl",)
    install: ClassVar[str] = INSTALL
    format: ClassVar[str] = "xlsx"

    def __init__(self, root: Path, *, sheet: str | None = None, **options: Any) -> None:
        super().__init__(root, **options)
        self.sheet = sheet

    def lines(self, file: Path) -> Iterator[tuple[int, list[str]]]:
        if file.suffix.lower() not in (".xlsx", ".xlsm"):
            refuse_spreadsheet(file)
        return sheet_lines(file, self.sheet, len(self.header or ()))


class Pickle(Json):
    """One's own data: a pickled file of plain rows, read as the same JSON document is; it is never unpickled (PathVQA).

    Args:
        file: the file under the root; None: ``{split}.pkl``.
    """

    usual: ClassVar[tuple[str, ...]] = ("{split}.pkl",)
    format: ClassVar[str] = "pickle"

    def content(self, file: Path) -> Any:
        return load_plain(file)
