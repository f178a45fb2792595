"""Spreadsheets in Excel's XLSX format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.readers.generic import Csv, refuse_spreadsheet
from vlcli.data.sheets import INSTALL, sheet_lines


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
        yield from sheet_lines(file, self.sheet, len(self.header or ()))
