"""Recognises text files that are lists: a picture a line and what is said of it, without a header."""

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from vlcli.data.files import IMAGE_SUFFIXES, is_picture_file, refuse_twins
from vlcli.errors import DataError

SUFFIXES = (".txt", ".lst", ".list")
SPACE, FIRST_SPACE = "space", "first-space"
"""Separators of the reader ``csv`` that are blanks: any, or those behind the picture's name alone."""
SEPARATORS = ("\t", ";", "|", ",")
IsPicture = Callable[[str], bool]
"""Tells whether a cell names a picture of the folder, with or without its ending."""
_LOOKED_AT = 50
_ENDINGS = "|".join(map(re.escape, sorted(IMAGE_SUFFIXES)))
_OF_SENTENCES = re.compile(r"an?|the|of|in|on|at|and|with|is|are|eine?|der|die|das|im|une?|l[aeo]s?|el|il")
_NUMBERS = re.compile(r"[-+.\d\s]+")
_NAMED = re.compile(rf"(.*?(?:{_ENDINGS}))\s+(\S.*)", re.IGNORECASE)


class ListForm(NamedTuple):
    """Separator of the cells, names for the columns (empty: the first line has them), and lines before the rows."""

    separator: str
    header: list[str]
    skip: int = 0


def form_of(path: Path, is_picture: IsPicture) -> ListForm | None:
    """Return the form of a text file that is a list or a table with a header; None: it is neither."""
    if path.suffix.lower() not in SUFFIXES:
        return None
    lines = _first_lines(path)
    tables = {mark: rows for mark in SEPARATORS if (rows := sample_rows(lines, mark))}
    even = {mark: rows for mark, rows in tables.items() if set(map(len, rows)) - {1} == {len(rows[0])}}
    for mark, rows in even.items():
        if header := header_of(rows, is_picture):
            return ListForm(mark, header)
    named = (mark for mark, rows in even.items() if any(map(is_picture_file, rows[:2][-1])))
    return next((ListForm(mark, []) for mark in named), None) or _form_by_blanks(lines, is_picture)


def header_of(rows: Sequence[Sequence[str]], is_picture: IsPicture) -> list[str]:
    """Return names for the columns of a table whose first row, with the name of a picture, is no header; else none."""
    columns = list(zip(*(row for row in rows[:_LOOKED_AT] if len(row) == len(rows[0])), strict=True))
    pictures = [is_picture_file(column[0]) for column in columns]
    if not any(pictures) and not any(pictures := [_are_pictures(column, is_picture) for column in columns]):
        return []
    names = ["image" if picture else "value" for picture in pictures]
    return [name if names.count(name) == 1 else f"{name}{number}" for number, name in enumerate(names, 1)]


def _are_pictures(column: Sequence[str], is_picture: IsPicture) -> bool:
    # the first cell may name a picture that is not there: but for digits, it is written as the second
    first, second = (re.sub(r"\d+", "0", cell) for cell in (column[0], column[min(1, len(column) - 1)]))
    return 2 * sum(map(is_picture, column)) > len(column) and (is_picture(column[0]) or first == second)


def lines_by_blanks(text: str, separator: str, count: int) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of the lines that are not blank.

    Args:
        separator: :data:`SPACE` or :data:`FIRST_SPACE`.
        count: columns; words beyond belong to the first; 0: every word is a cell.
    """
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        if line and separator == FIRST_SPACE:
            hit = _NAMED.match(line)
            yield number, list(hit.groups()) if hit else line.split(None, 1)
        elif line:
            yield number, line.rsplit(None, count - 1)


def cell_lines(text: str, separator: str, count: int, where: str) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of the lines of a table that are not blank.

    Args:
        separator: one letter, or with ``count`` as in :func:`lines_by_blanks`.

    Raises:
        DataError: the CSV is malformed.
    """
    if separator in (SPACE, FIRST_SPACE):
        yield from lines_by_blanks(text, separator, count)
        return
    text = text if "\n" in text else text.replace("\r", "\n")  # Excel's "CSV (Macintosh)"
    reader = csv.reader(io.StringIO(text), delimiter=separator, strict=True, skipinitialspace=True)
    try:
        yield from ((reader.line_num, line) for line in reader if line)
    except csv.Error as error:
        where, reason = f"{where}:{reader.line_num}", str(error)
        if "field limit" not in reason:
            raise DataError("The CSV is malformed.", where=where, got=reason) from None
        got = f"more than {csv.field_size_limit():,} characters"
        hint = "is a quotation mark left open in a line before? Else shorten the cell"
        raise DataError("A cell of the CSV is too long.", where=where, got=got, hint=hint) from None


def fitting_rows(
    lines: Iterable[tuple[int, list[str]]], names: Sequence[str], where: str
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield numbered lines of cells as column -> cell, each with its place.

    Raises:
        DataError: a line has more or fewer cells than there are columns.
    """
    refuse_twins(names, where)
    for number, cells in lines:
        place = f"{where}:{number}"
        if len(cells) != len(names):
            raise DataError("The row does not fit the header.", where=place, expected=f"{len(names)} cells")
        yield place, dict(zip(names, cells, strict=True))


def _first_lines(path: Path) -> list[str]:
    lines: list[str] = []
    with suppress(OSError), path.open("rb") as file:
        if file.peek(2)[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            text = file.read(8192 * _LOOKED_AT).decode("utf-16", "ignore")
            return list(filter(None, map(str.strip, text.splitlines()[:_LOOKED_AT])))
        lines = [file.readline(4096).decode("utf-8", "replace") for _ in range(_LOOKED_AT)]
    whole = [line.strip() for line in lines if line.endswith("\n")]  # the last one may be cut
    return list(filter(None, whole)) or list(filter(None, map(str.strip, lines)))


def _form_by_blanks(lines: Sequence[str], is_picture: IsPicture) -> ListForm | None:
    header, *rows = map(str.split, lines or [""])
    named = len(header) > 1 and all(map(str.isidentifier, header)) and {len(header)} == set(map(len, rows))
    if named and any(all(map(is_picture_file, column)) for column in zip(*rows, strict=True)):
        return ListForm(" ", [])  # Stanford Online Products
    width = len(rows[1]) if len(rows) > 1 and lines[0].isdecimal() else 0
    if width and len(rows[0]) in (width, width - 1):
        form = _form_by_blanks(lines[2:], is_picture)  # CelebA: number of rows, names of the columns
        return None if form is None else ListForm(SPACE, ["image", *rows[0][len(rows[0]) - width + 1 :]], 2)
    cells = [cells for _, cells in lines_by_blanks("\n".join(lines), FIRST_SPACE, 0)]
    if not cells or any(len(line) < 2 for line in cells):
        return None
    names, rest = zip(*cells, strict=True)
    if not (all(map(is_picture_file, names)) or _are_pictures(names, is_picture)):
        return None
    counts, numbers = {len(words.split()) for words in rest}, all(map(_NUMBERS.fullmatch, rest))
    if numbers and len(counts) == 1 and counts != {1}:
        return ListForm(SPACE, ["image", *(f"value{number}" for number in range(2, counts.pop() + 2))])
    several = counts != {1} if numbers else _are_combined(rest)
    return ListForm(FIRST_SPACE, ["image", "labels" if several else "value"])


def _are_combined(texts: Sequence[str]) -> bool:
    """Return whether a few words occur in more combinations than there are words, as classes do, not sentences."""
    words = [text.lower().split() for text in texts]
    known = {word for some in words for word in some}
    once = all(len(set(some)) == len(some) for some in words)
    return once and not any(map(_OF_SENTENCES.fullmatch, known)) and len(set(map(tuple, words))) > 2 * len(known)


def sample_rows(lines: Sequence[str], separator: str) -> list[list[str]]:
    """Return the rows of a few lines of CSV; none where they are malformed."""
    try:
        return list(filter(None, csv.reader(lines, delimiter=separator, skipinitialspace=True)))
    except csv.Error:
        return []
