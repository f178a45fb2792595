"""Reads tables of a folder: format, encoding and rows are recognised by their content."""

import importlib.util
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from vlcli.data import sheets
from vlcli.data.conversations import are_turns
from vlcli.data.files import as_object, parsed, read_text, records_of, refuse_twins, rows_inside
from vlcli.data.plain_pickle import load_plain
from vlcli.data.recognition.lists import SEPARATORS, IsPicture, ListForm, cell_lines, header_of, sample_rows
from vlcli.errors import DataError

SUFFIXES = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
SUFFIXES |= {".jsonlines": "jsonl", ".xlsx": "xlsx", ".xlsm": "xlsx", ".pkl": "pickle", ".pickle": "pickle"}
"""Reader by the ending of a file's name; ``.gz`` may follow."""
# Larger files are named and left unread
MOST_BYTES = 512 * 2**20
# Rows, spread over the table, from which the meaning of columns is guessed; the reader of the recipe reads all
MOST_ROWS = 5000
T = TypeVar("T")
# Columns of lists of questions and of their answers.
_PARALLEL = (("questions", "answers"), ("question", "answer"), ("Questions", "Answers"))
_SENTENCE = {"question", "caption", "sentence", "expression", "text"}
INSTALL = "pip install 'vlcli[parquet]'"


@dataclass
class TableFile:
    """One file with rows."""

    path: Path
    reader: str  # registered name
    rows: list[dict[str, Any]]  # at most MOST_ROWS, spread over the whole table
    encoding: str = "utf-8"
    separator: str = ","
    header: list[str] = field(default_factory=list)  # names given to the columns of a CSV without a header
    skip: int = 0  # lines of such a CSV before its rows
    document: Any = field(default=None, repr=False)  # the whole JSON document
    each: str | tuple[str, ...] = ""  # column whose objects are the rows, or columns of parallel lists

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(str(name) for row in self.rows[:50] for name in row))

    def values(self, column: str) -> list[Any]:  # without empty ones
        return [row[column] for row in self.rows if row.get(column) not in (None, "")]


def reader_of(name: str) -> str:
    """Return the reader of tables and JSON documents for the ending of a name; empty without any."""
    return SUFFIXES.get(Path(name.removesuffix(".gz")).suffix.lower(), "")


def read_table(path: Path, is_picture: IsPicture, form: ListForm | None) -> TableFile | None:
    """Read one table; None: the file holds no rows. Raises DataError: it cannot be read."""
    reader = reader_of(path.name)
    if reader == "parquet":
        return _parquet(path)
    if reader == "xlsx":
        return _sheet(path)
    if reader == "pickle":
        return _of_document(path, reader, load_plain(path))
    encoding = encoding_of(path)
    text = read_text(path, encoding)
    if form is not None or reader in ("", "csv"):
        form = form or _form_of_csv(text, is_picture)
        numbered = cell_lines(text, form.separator, len(form.header), str(path))
        return _of_lines(TableFile(path, "csv", [], encoding, *form), numbered)
    first = text.lstrip().split("\n", 3)[:2] if path.suffix == ".json" else []
    if reader == "jsonl" and text.lstrip()[:1] == "[":  # one document whose name says lines
        reader = "json"
    elif reader == "jsonl" or (len(first) == 2 and all(isinstance(parsed(line), dict) for line in first)):
        lines = [line for line in text.splitlines() if line.strip()]
        rows = list(map(_document, spread(lines)))
        return _of_objects(TableFile(path, "jsonl", [row for row in rows if isinstance(row, dict)], encoding))
    return _of_document(path, reader, _document(text), encoding)


def _of_document(path: Path, reader: str, document: Any, encoding: str = "utf-8") -> TableFile:
    try:
        rows = [row for row in map(as_object, spread(records_of(document, str(path)))) if isinstance(row, dict)]
    except DataError:
        rows = []
    return _of_objects(TableFile(path, reader, rows, encoding, document=document))


def _of_objects(table: TableFile) -> TableFile:
    # a row for each object of the column of lists of sentences, or for each question and its answer
    pairs = (pair for pair in _PARALLEL if _are_parallel(table, pair))
    lists = (name for name in table.columns if name != "options" and _holds_sentences(table.values(name)))  # Prodigy's
    each = next(chain[str | tuple[str, ...]](pairs, lists), "")
    rows = [one for row in table.rows for one in rows_inside(row, each, "")] if each else table.rows
    return replace(table, rows=rows, each=each)


def _holds_sentences(cells: Sequence[Any]) -> bool:
    inner = [one for cell in cells for one in (cell if isinstance(cell, list) else [None])]
    objects = [one for one in inner if isinstance(one, dict)]
    every = bool(inner) and len(objects) == len(inner)
    return every and (all(_SENTENCE & one.keys() for one in objects) or are_turns(objects))


def _are_parallel(table: TableFile, pair: tuple[str, str]) -> bool:
    rows: list[list[Any]] = [[row.get(name) for name in pair] for row in table.rows]
    lists = all(isinstance(cell, list) for cells in rows for cell in cells)
    return bool(rows) and lists and all(len(asked) == len(said) for asked, said in rows)


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError("The JSON is malformed.", got=str(error)[:120]) from None


def encoding_of(path: Path) -> str:
    """Return the encoding of a text file: UTF-8, UTF-16 by its mark or zeros, else Latin-1 or Windows-1252.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError("The file cannot be read.", where=str(path), got=error.strerror or "") from None
    if data[:2] == b"\x1f\x8b":
        return "utf-8"
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    sample = data[:4096]
    if sample.count(0) > len(sample) // 4:
        return "utf-16-le" if sample[1::2].count(0) > sample[::2].count(0) else "utf-16-be"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252" if any(0x80 <= byte < 0xA0 for byte in data) else "latin-1"
    return "utf-8"


def _form_of_csv(text: str, is_picture: IsPicture) -> ListForm:
    lines = text.split("\n", 50)[:50]
    separator = max(SEPARATORS, key=lines[0].count)
    rows = sample_rows(lines, separator)
    return ListForm(separator, header_of(rows, is_picture) if rows else [])


def _of_lines(table: TableFile, lines: Iterable[tuple[int, list[str]]]) -> TableFile | None:
    names, rows = table.header, []
    for number, cells in (numbered for numbered in lines if numbered[0] > table.skip):
        if not names:
            names = [name.strip() for name in cells]
        elif len(cells) == len(names):
            rows.append(cells)
        else:
            what = f"Line {number} does not have the header's {len(names)} cells."
            hint = "cells that hold the separator need quotation marks" if len(cells) > len(names) else ""
            raise DataError(what, got=f"{len(cells)}: {' '.join(cells)[:80]}", hint=hint)
    parsed_rows = [[parsed(cell) if cell[:1] in ("[", "{") else cell for cell in cells] for cells in spread(rows)]
    refuse_twins(names)
    return replace(table, rows=[dict(zip(names, cells, strict=True)) for cells in parsed_rows]) if rows else None


def _sheet(path: Path) -> TableFile | None:
    if importlib.util.find_spec("openpyxl") is None:
        raise DataError("Spreadsheets need the package openpyxl.", hint=sheets.INSTALL)
    return _of_lines(TableFile(path, "xlsx", []), sheets.sheet_lines(path))


def spread(rows: list[T]) -> list[T]:
    """Return at most :data:`MOST_ROWS` rows, evenly spread over all parts."""
    return rows[:: -(-len(rows) // MOST_ROWS) or 1]


def _parquet(path: Path) -> TableFile:
    if importlib.util.find_spec("pyarrow") is None:
        raise DataError("Parquet needs the package pyarrow.", hint=INSTALL)
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    try:
        file = pq.ParquetFile(path)
        if re.search(r"struct<bytes: \w*binary, path: \w+>", str(file.schema_arrow)):
            raise DataError("Its pictures lie inside the table.", hint="vlcli data unpack writes them to files")
        groups = spread(list(range(file.num_row_groups)))
        most = max(1, MOST_ROWS // max(1, len(groups)))
        rows = [row for group in groups for row in file.read_row_group(group).slice(0, most).to_pylist()]
    except (ArrowException, OSError) as error:
        raise DataError("The Parquet file is damaged.", got=str(error)[:120]) from None
    return TableFile(path, "parquet", rows)
