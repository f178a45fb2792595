"""Reads annotation files; an error names the file, the line and the field."""

import codecs
import gzip
import io
import json
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

from vlcli.data.conversations import are_turns, questions_of
from vlcli.errors import DataError, UsageError, shown
from vlcli.files import walk

K = TypeVar("K")
V = TypeVar("V")
UNPACKED = "VLCLI_UNPACKED_MB"
_GZIP = b"\x1f\x8b"
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})


# Rows below which lists of one length in an object are no columns of a table, but captions of pictures
FEWEST_ROWS = 10


def is_picture_file(name: str) -> bool:
    """Return whether a name ends like the file of a picture."""
    return Path(name).suffix.lower() in IMAGE_SUFFIXES


def inside(root: Path, path: str | Path) -> Path:
    """Return ``path`` under ``root``, absolute paths unchanged. Raises DataError: a relative path leaves ``root``."""
    target = Path(path).expanduser()
    if target.is_absolute():
        return target
    joined = Path(os.path.normpath(root / target))
    if not joined.is_relative_to(os.path.normpath(root)):
        what, hint = "A path leaves the data root.", "give an absolute path if it is meant"
        raise DataError(what, where=str(root), got=str(path), expected="a path inside the root", hint=hint)
    return joined


@lru_cache(256)
def prefix(folder: str) -> str:
    """Return the text that the paths in a folder begin with."""
    normal = os.path.normpath(folder)
    return "" if normal == "." else normal.rstrip("/") + "/"


def known_encoding(name: str) -> str:
    """Return the name of a text encoding. Raises DataError: Python knows none of this name."""
    try:
        "".encode(name)
        codecs.lookup(name)
    except (LookupError, ValueError):
        expected = "utf-8, utf-16, latin-1, cp1252, shift_jis, ..."
        raise DataError("There is no such text encoding.", where="encoding", got=name, expected=expected) from None
    return name


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Read a text file, gzip or not, without its byte order mark."""
    data = read_content(path)
    with _readable(path, encoding):
        return data.decode(_codec(encoding))


def read_content(path: Path) -> bytes:
    """Read a file, gzip or not."""
    with _readable(path, ""), path.open("rb") as file:
        packed = file.peek(2).startswith(_GZIP)
        return b"".join(iter(_Unpacking(file, path).read1, b"")) if packed else file.read()


def text_lines(path: Path, encoding: str = "utf-8", errors: str = "strict") -> Iterator[str]:
    """Yield the lines of a text file, gzip or not, without their ends (a newline alone is one).

    ``errors`` is that of :meth:`bytes.decode`. Raises DataError as :func:`read_text`, on reaching the fault.
    """
    with _readable(path, encoding), path.open("rb") as file:
        source: Any = _Unpacking(file, path) if file.peek(2).startswith(_GZIP) else file
        for line in io.TextIOWrapper(source, _codec(encoding), errors, "\n"):
            yield line.removesuffix("\n")


def numbered_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[str, str]]:
    """Yield the lines of :func:`text_lines` that are not blank, stripped, each behind its place (``FILE:line``)."""
    for number, line in enumerate(text_lines(path, encoding), 1):
        if text := line.strip():
            yield f"{path}:{number}", text


def _codec(encoding: str) -> str:
    return "utf-8-sig" if encoding == "utf-8" else encoding


@contextmanager
def _readable(path: Path, encoding: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError("The file does not exist.", where=str(path), hint="check `root` and the file's name") from None
    except UnicodeError as error:
        name = "UTF-8" if encoding == "utf-8" else encoding
        hint = "save it as UTF-8; tables of your own may say another: encoding: utf-16, or latin-1"
        raise DataError(f"The file is not {name} text.", where=str(path), got=str(error)[:200], hint=hint) from None
    except (OSError, EOFError, zlib.error) as error:
        got = f"{type(error).__name__}: {error}"
        raise DataError("The file cannot be read.", where=str(path), got=got, hint="is it complete?") from None


class _Unpacking(gzip.GzipFile):
    """A gzip file that is refused once it has unpacked to too much."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        super().__init__(fileobj=file)
        self._path, self._limit, self._count = path, unpacked_limit(path.stat().st_size), 0

    def read1(self, size: int = -1) -> bytes:
        content = super().read1(size)
        self._count += len(content)
        if self._count > self._limit:
            raise too_much(self._path, self._limit)
        return content


def unpacked_limit(packed: int) -> int:
    """Return how many bytes a gzip file of ``packed`` bytes may unpack to: 100 times as many, at least 256 MB.

    ``VLCLI_UNPACKED_MB`` sets another limit. Text packs to a third or a tenth; a hundredth is a file made to fill the
    memory.
    """
    megabytes = megabytes_of(UNPACKED, "megabytes, such as 4000")
    return max(256 * 10**6, 100 * packed) if megabytes is None else megabytes * 10**6


def megabytes_of(variable: str, expected: str) -> int | None:
    """Return the number of an environment variable; None where it is not set. Raises UsageError: it is no number."""
    text = os.environ.get(variable, "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"{variable} is no number.", got=shown(text), expected=expected)
    return int(text) if text else None


def too_much(path: Path, limit: int) -> DataError:
    """Make the error for a gzip file that unpacks to more than ``limit`` bytes."""
    what, expected = "The packed file unpacks to too much.", "at most 100 times the packed size (256 MB always)"
    hint = f"if that is meant, say how many megabytes are: {UNPACKED}=8000"
    return DataError(what, where=str(path), got=f"more than {limit:,} bytes", expected=expected, hint=hint)


def read_json(path: Path, kind: type | tuple[type, ...] = dict) -> Any:
    """Read a JSON document with a top level of ``kind``. Raises DataError: it has another, or is malformed."""
    content = parse_json(read_text(path), str(path))
    if not isinstance(content, kind):
        got, expected = _name(type(content)), _names(kind)
        raise DataError("The file holds something else.", where=str(path), got=got, expected=expected)
    return content


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON-lines file, each with its ``file:line``; blank lines are skipped."""
    for where, line in numbered_lines(path, encoding):
        try:
            row = parse_json(line, where, one_line=True)
            if not isinstance(row, dict):
                raise DataError("The line is no object.", where=where, got=_name(type(row)), expected="{...}")
            yield where, row
        except DataError as error:
            raise _one_document(path, encoding) or error from None


def _one_document(path: Path, encoding: str) -> DataError | None:
    try:
        content = json.loads(read_text(path, encoding))
    except (ValueError, RecursionError):
        return None
    hint = f"read it with the reader json: {{name: json, file: {path.name}}}"
    if isinstance(content, list):
        hint += f"; or: jq -c '.[]' {path.name} > {path.with_suffix('.jsonl').name}"
    what, expected = "The file is one JSON document, not JSON lines.", "an object a line, without commas between them"
    return DataError(what, where=str(path), got=_name(type(content)), expected=expected, hint=hint)


def parse_json(text: str, where: str, one_line: bool = False) -> Any:
    """Parse a JSON document; ``one_line`` says that ``where`` names the line already."""
    try:
        return json.loads(text, object_pairs_hook=partial(_object, where))
    except json.JSONDecodeError as error:
        where, got = where if one_line else f"{where}:{error.lineno}", f"{error.msg} at column {error.colno}"
        raise DataError("The JSON is malformed.", where=where, got=got, hint="is the file complete?") from None
    except RecursionError:
        raise DataError("The JSON is nested too deeply.", where=where, expected="some hundred levels at most") from None
    except ValueError:  # Python reads no integers of more than 4,300 digits
        raise DataError("The JSON holds a number of thousands of digits.", where=where) from None


def _object(where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):  # of which JSON readers keep the last value in silence
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise DataError("An object of the JSON has a key twice.", where=where, got=shown(twice))
    return content


def first_object(rows: Any) -> dict[str, Any]:
    """Return the first of a list of objects; ``{}`` for anything else."""
    return rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}


def value(row: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    """Return ``row[key]``, which must be of ``kind``. Raises DataError: absent or of another type."""
    if not isinstance(row, dict) or key not in row:
        got = ", ".join(map(str, row)) if isinstance(row, dict) else _name(type(row))
        raise DataError(f"The field {key!r} is missing.", where=where, got=got, expected=f"{key}: {_names(kind)}")
    cell = row[key]
    if not isinstance(cell, kind) or (isinstance(cell, bool) and kind is int):
        got = f"{shown(cell)} ({_name(type(cell))})"
        raise DataError(f"The field {key!r} has a wrong type.", where=where, got=got, expected=_names(kind))
    return cell


def _names(kind: type | tuple[type, ...]) -> str:
    return " or ".join(dict.fromkeys(map(_name, kind if isinstance(kind, tuple) else (kind,))))


def _name(kind: type) -> str:
    return {dict: "an object", list: "a list", str: "text", int: "a number", float: "a number"}.get(kind, kind.__name__)


def parsed(cell: str) -> Any:
    """Return a cell's JSON value, else the cell itself."""
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell


def records_of(content: Any, where: str) -> list[Any]:
    """Return the rows of a JSON document. Raises DataError: there are none.

    They are a list's entries, an object's values, the entries of the lists in an object (of all of them where all have
    the same fields, else of the first), or the cells at one place of all columns (as pandas writes a table). A row
    without the field ``key`` gets that of its object or list. Questions among ``annotations`` get the fields of their
    ``images``.
    """
    if isinstance(content, list):
        return content
    if isinstance(content, dict):
        if rows := _asked(content):
            return rows
        lists = {key: value for key, value in content.items() if isinstance(value, list) and _are_objects(value[:1])}
        if len({frozenset(value[0]) for value in lists.values()}) == 1 < len(lists):
            return [{"key": key} | row if isinstance(row, dict) else row for key in lists for row in lists[key]]
        if lists:
            return next(iter(lists.values()))
        if columns := _columns_of(content):
            return [dict(zip(content, cells, strict=True)) for cells in zip(*columns, strict=True)]
        if _are_objects(content.values()) and set.intersection(*map(set, islice(content.values(), 2))):
            return [{"key": key} | row for key, row in content.items()]
    got, expected = type(content).__name__, "a list of objects"
    raise DataError("The JSON document holds no table.", where=where, got=got, expected=expected)


def _asked(content: dict[str, Any]) -> list[dict[str, Any]]:
    # EVJVQA has lists, OpenViVQA objects by id, in which an image is its file's name
    images, notes = content.get("images"), content.get("annotations")
    rows: Any = list(notes.values()) if isinstance(notes, dict) else notes
    if "question" not in first_object(rows) or not isinstance(images, list | dict) or not _are_objects(rows):
        return []
    named = images if isinstance(images, dict) else {str(one.get("id")): one for one in images if isinstance(one, dict)}
    fields = {key: one if isinstance(one, dict) else {"filename": one} for key, one in named.items()}
    return [fields.get(str(row.get("image_id")), {}) | row for row in rows]


def _columns_of(content: dict[str, Any]) -> list[list[Any]]:
    columns = list(content.values())
    if _are_objects(columns) and list(columns[0]) == list(map(str, range(len(columns[0])))):
        columns = [list(one.values()) for one in columns if list(one) == list(columns[0])]
    long = [one for one in columns if isinstance(one, list) and len(one) >= max(FEWEST_ROWS, len(content))]
    return long if len(long) == len(content) and len(set(map(len, long))) == 1 else []


def _are_objects(values: Collection[Any]) -> bool:
    return bool(values) and all(isinstance(value, dict) for value in values)


def rows_inside(row: Any, each: str | Sequence[str], where: str) -> list[dict[str, Any]]:
    """Return a row for each object in the column ``each``, with the other columns of the outer row.

    ``each`` is a column of lists of objects, or several columns of lists of which the entries at a place go together.
    Turns of a conversation become rows with ``question`` and ``answer``.

    Raises:
        DataError: the cell holds anything else.
    """
    if not isinstance(each, str):
        cells = [row.get(name) for name in each] if isinstance(row, dict) else []
        lists = [cell for cell in cells if isinstance(cell, list)]
        if len(lists) < len(each) or len({len(cell) for cell in lists}) > 1:
            what, got = f"{', '.join(each)} do not go together.", ", ".join(map(shown, cells))
            raise DataError(what, where=where, got=got, expected="lists of one length")
        rest = {name: value for name, value in row.items() if name not in each}
        return [rest | dict(zip(each, together, strict=True)) for together in zip(*lists, strict=True)]
    cell = row.get(each) if isinstance(row, dict) else None
    cell = [] if cell is None else cell
    if not isinstance(cell, list) or not all(isinstance(one, dict) for one in cell):
        raise DataError(f"{each} holds no list of objects.", where=where, got=shown(cell), expected="[{...}, ...]")
    rest = {name: value for name, value in row.items() if name != each}
    return [rest | inner for inner in (questions_of(cell) if are_turns(cell) else cell)]


def as_object(row: Any) -> Any:
    """Return a list as an object with the fields ``column1``, ``column2`` ...; other values unchanged."""
    return {f"column{number}": cell for number, cell in enumerate(row, 1)} if isinstance(row, list) else row


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, both in the order of first use."""
    groups: dict[K, list[V]] = {}
    for key, one in pairs:
        groups.setdefault(key, []).append(one)
    return groups


def picture_stems(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield name without ending, and name, of the files that are pictures."""
    for name in names:
        stem, _, suffix = name.rpartition(".")
        if stem and f".{suffix.lower()}" in IMAGE_SUFFIXES:
            yield stem, name


def index_images(folder: Path) -> dict[str, list[Path]]:
    """Return every picture under ``folder`` by its id (file name without extension), folders in sorted order."""
    return grouped((stem, path / name) for path, names in walk(folder) for stem, name in picture_stems(names))


def refuse_twins(names: Sequence[str], where: str = "") -> None:
    """Raise DataError if two columns have the same name."""
    if twice := next((name for name in names if name and names.count(name) > 1), ""):
        raise DataError("Two columns have the same name.", where=where, got=twice, hint="give each a name of its own")
