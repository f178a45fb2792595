"""Reads the cells of XLSX workbooks."""

import datetime
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from vlcli.data.files import too_much, unpacked_limit
from vlcli.errors import DataError

INSTALL = "pip install 'vlcli[xlsx]'"
_FAULTS = (OSError, ValueError, TypeError, LookupError, AttributeError, EOFError, SyntaxError, NotImplementedError)


def sheet_lines(file: Path, sheet: str | None = None, width: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Yield a sheet's rows (None: the first's) with their numbers, as CSV would have them; empty rows are left out.

    ``width`` is the cells of a row; 0: as many as the first row has.
    """
    try:
        yield from _rows(file, sheet, width)
    except (*_FAULTS, zipfile.BadZipFile, zlib.error) as error:
        got = f"{type(error).__name__}: {str(error)[:200]}"
        hint = "is it complete, and saved as .xlsx without a password?"
        raise DataError("The spreadsheet cannot be read.", where=str(file), got=got, hint=hint) from None


def check_unpacked(file: Path) -> None:
    """Refuse a ZIP archive whose files are too large (:func:`vlcli.data.files.unpacked_limit`)."""
    limit = unpacked_limit(file.stat().st_size)
    with zipfile.ZipFile(file) as archive:
        if sum(member.file_size for member in archive.infolist()) > limit:
            raise too_much(file, limit)


def _rows(file: Path, wanted: str | None, width: int) -> Iterator[tuple[int, list[str]]]:
    import openpyxl

    check_unpacked(file)
    with closing(openpyxl.load_workbook(file, read_only=True, data_only=True)) as book:
        names = [sheet.title for sheet in book.worksheets]
        if not names or wanted not in (None, *names):
            got, expected = str(wanted or "no sheet"), ", ".join(names)
            raise DataError("The workbook has no such sheet.", where=str(file), got=got, expected=expected)
        sheet = book[wanted or names[0]]
        sheet.reset_dimensions()  # what a file says of its size may be wrong
        for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
            cells = [_text(cell) for cell in row]
            while len(cells) > width and not cells[-1]:
                cells.pop()
            if any(cells):
                width = width or len(cells)
                yield number, cells + [""] * (width - len(cells))


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, bool):
        return str(cell).lower()
    return cell.isoformat() if isinstance(cell, datetime.date | datetime.time) else str(cell)


def refuse_spreadsheet(file: Path) -> None:
    """Refuse a workbook where a text file is expected, and kinds of workbooks that no reader reads."""
    kind = file.suffix.lower()
    hints = dict.fromkeys((".xlsx", ".xlsm"), "read it as a spreadsheet: {name: xlsx, file: " + file.name + "}")
    others = (".xls", ".xlsb", ".ods", ".numbers")
    hints |= dict.fromkeys(others, "save it as .xlsx or as CSV in the program that wrote it")
    if kind in hints:
        raise DataError("The file is a spreadsheet, not text.", where=str(file), got=kind, hint=hints[kind])
