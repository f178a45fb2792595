"""Spreadsheets in Excel's XLSX format."""

from __future__ import annotations

import datetime
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.files import too_much, unpacked_limit
from vlcli.data.readers.generic import Csv, refuse_spreadsheet
from vlcli.errors import DataError


class Xlsx(Csv):
    """One's own data: a sheet of an XLSX workbook with a header, read as the same table in CSV is (needs openpyxl).

    Whole numbers have no decimal point, dates are written as in ISO 8601, and of formulas the stored values count.

    Args:
        root: data root.
        sheet: name of the sheet; None: the first.
        options: those of ``csv``; the file is ``{split}.xlsx`` unless a recipe names another.
    """

    usual_file: ClassVar[str] = "{split}.xlsx"
    packages: ClassVar[tuple[str, ...]] = ("openpyxl",)
    install: ClassVar[str] = "pip install 'vlcli[xlsx]'"

    def __init__(self, root: Path, *, sheet: str | None = None, **options: Any) -> None:
        super().__init__(root, **options)
        self.sheet = sheet

    def lines(self, file: Path) -> Iterator[tuple[int, list[str]]]:
        """The rows of the sheet, header included, each with its number; empty rows are passed over.

        Raises:
            DataError: the file is missing, damaged, of another format, unpacks to too much, or has no such sheet.
        """
        if file.suffix.lower() not in (".xlsx", ".xlsm"):
            refuse_spreadsheet(file)
        faults = (OSError, ValueError, TypeError, LookupError, AttributeError, EOFError, SyntaxError)
        try:
            yield from self._rows(file)
        except (*faults, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
            got = f"{type(error).__name__}: {str(error)[:200]}"
            hint = "is it complete, and saved as .xlsx without a password?"
            raise DataError("The spreadsheet cannot be read.", where=str(file), got=got, hint=hint) from None

    def _rows(self, file: Path) -> Iterator[tuple[int, list[str]]]:
        import openpyxl

        with zipfile.ZipFile(file) as archive:
            limit = unpacked_limit(file.stat().st_size)
            if sum(member.file_size for member in archive.infolist()) > limit:
                raise too_much(file, limit)
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        try:
            names = [sheet.title for sheet in book.worksheets]
            if not names or self.sheet not in (None, *names):
                got, expected = str(self.sheet or "no sheet"), ", ".join(names)
                raise DataError("The workbook has no such sheet.", where=str(file), got=got, expected=expected)
            sheet = book[self.sheet or names[0]]
            sheet.reset_dimensions()  # what a file says of its size may be wrong
            width = len(self.header or ())
            for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
                cells = [_text(cell) for cell in row]
                while len(cells) > width and not cells[-1]:
                    cells.pop()
                if any(cells):
                    width = width or len(cells)
                    yield number, cells + [""] * (width - len(cells))
        finally:
            book.close()


def _text(cell: Any) -> str:
    """A cell as a CSV file has it."""
    if cell is None:
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, bool):
        return str(cell).lower()
    return cell.isoformat() if isinstance(cell, datetime.datetime | datetime.date | datetime.time) else str(cell)
