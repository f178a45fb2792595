"""Reading annotation files so that every fault is named: which file, which line, which field."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from vlcli.errors import DataError, UsageError, shown

UNPACKED = "VLCLI_UNPACKED_MB"
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})


def inside(root: Path, path: str | Path) -> Path:
    """``path`` under ``root``; an absolute path stands for itself, a relative one may not leave ``root``.

    Raises:
        DataError: it climbs out.
    """
    given = Path(path).expanduser()
    if given.is_absolute():
        return given
    joined = Path(os.path.normpath(root / given))
    if not joined.is_relative_to(os.path.normpath(root)):
        raise DataError(
            "A path leaves the data root.",
            where=str(root),
            got=str(path),
            expected="a path inside the root",
            hint="give an absolute path if it is meant",
        )
    return joined


@lru_cache(256)
def prefix(folder: str) -> str:
    """How paths in a folder begin."""
    normal = os.path.normpath(folder)
    return "" if normal == "." else normal.rstrip("/") + "/"


def known_encoding(name: str) -> str:
    """An encoding of text files, checked.

    Raises:
        DataError: Python knows none of this name.
    """
    try:
        "".encode(name)
        codecs.lookup(name)
    except (LookupError, ValueError):
        expected = "utf-8, utf-16, latin-1, cp1252, shift_jis, ..."
        raise DataError("There is no such text encoding.", where="encoding", got=name, expected=expected) from None
    return name


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """A text file, gzip or not.

    Args:
        path: the file.
        encoding: as Python calls it; a byte order mark is left out.

    Raises:
        DataError: missing, unreadable, truncated or not of this encoding.
    """
    with _readable(path, encoding):
        data = path.read_bytes()
        return (_unpacked(data, path) if _is_packed(data) else data).decode(_codec(encoding))


def text_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a text file, gzip or not, one after another, without their ends (a newline alone is one).

    Args:
        path: the file.
        encoding: as Python calls it; a byte order mark is left out.

    Raises:
        DataError: as :func:`read_text`, when the fault is met.
    """
    with _readable(path, encoding), path.open("rb") as file:
        packed = _is_packed(file.peek(2))
        source: Any = _Unpacking(file, path) if packed else file
        for line in io.TextIOWrapper(source, encoding=_codec(encoding), newline="\n"):
            yield line.removesuffix("\n")


def _is_packed(data: bytes) -> bool:
    return data[:2] == b"\x1f\x8b"


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
    """A gzip file that is refused once it has unpacked to too much.

    Args:
        file: its bytes.
        path: its name, for the message.
    """

    def __init__(self, file: IO[bytes], path: Path) -> None:
        super().__init__(fileobj=file)
        self._path, self._limit, self._count = path, unpacked_limit(path.stat().st_size), 0

    def read1(self, size: int = -1) -> bytes:
        """Bytes, counted."""
        found = super().read1(size)
        self._count += len(found)
        if self._count > self._limit:
            raise too_much(self._path, self._limit)
        return found


def unpacked_limit(packed: int) -> int:
    """How many bytes a gzip file of ``packed`` bytes may unpack to: 100 times as many, but 256 MB always.

    Text packs to a third or a tenth; a hundredth is a file made to fill the memory. ``VLCLI_UNPACKED_MB`` says another
    limit.

    Raises:
        UsageError: the variable holds no number.
    """
    said = os.environ.get(UNPACKED, "")
    if said and not (said.isascii() and said.isdigit() and len(said) < 10):
        raise UsageError(f"{UNPACKED} is no number.", got=shown(said), expected="megabytes, such as 4000")
    return int(said) * 10**6 if said else max(256 * 10**6, 100 * packed)


def _unpacked(data: bytes, path: Path) -> bytes:
    limit = unpacked_limit(len(data))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        found = file.read(limit + 1)
    if len(found) > limit:
        raise too_much(path, limit)
    return found


def too_much(path: Path, limit: int) -> DataError:
    """The fault of a gzip file that unpacks to more than ``limit`` bytes."""
    return DataError(
        "The packed file unpacks to too much.",
        where=str(path),
        got=f"more than {limit:,} bytes",
        expected="at most 100 times the packed size (256 MB always)",
        hint=f"if that is meant, say how many megabytes are: {UNPACKED}=8000",
    )


def read_json(path: Path, kind: type | tuple[type, ...] = dict) -> Any:
    """A JSON document whose top level is of ``kind``.

    Raises:
        DataError: malformed (with line and column), or something else at the top.
    """
    content = parse_json(read_text(path), str(path))
    if not isinstance(content, kind):
        raise DataError(
            "The file holds something else.",
            where=str(path),
            got=_name(type(content)),
            expected=_names(kind),
        )
    return content


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON-lines file, each with its place (``file:line``); blank lines are passed over.

    Raises:
        DataError: a line is malformed or no object.
    """
    for number, line in enumerate(text_lines(path, encoding), 1):
        if line and not line.isspace():
            try:
                yield f"{path}:{number}", _line_object(line, f"{path}:{number}")
            except DataError as error:
                raise _one_document(path, encoding) or error from None


def _one_document(path: Path, encoding: str) -> DataError | None:
    try:
        found = json.loads(read_text(path, encoding))
    except (ValueError, RecursionError):
        return None
    return DataError(
        "The file is one JSON document, not JSON lines.",
        where=str(path),
        got=_name(type(found)),
        expected="an object a line, without commas between them",
        hint=f"read it with the reader json: {{name: json, file: {path.name}}}"
        + (f"; or: jq -c '.[]' {path.name} > {path.with_suffix('.jsonl').name}" if isinstance(found, list) else ""),
    )


def parse_json(text: str, where: str, one_line: bool = False) -> Any:
    """The JSON value ``text``.

    Args:
        text: the document.
        where: file, or file and line.
        one_line: whether ``where`` names the line already.

    Raises:
        DataError: malformed (with line and column), nested too deeply, or with a number of thousands of digits.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except _KeyTwiceError as error:
        raise DataError("An object of the JSON has a key twice.", where=where, got=shown(error.args[0])) from None
    except json.JSONDecodeError as error:
        raise _malformed(where if one_line else f"{where}:{error.lineno}", error) from None
    except RecursionError:
        raise DataError("The JSON is nested too deeply.", where=where, expected="some hundred levels at most") from None
    except ValueError:  # Python reads no integers of more than 4,300 digits
        raise DataError("The JSON holds a number of thousands of digits.", where=where) from None


class _KeyTwiceError(Exception):
    """The key that stands twice in one object, of which JSON readers keep the last value in silence."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _KeyTwiceError(next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place])))
    return found


def _line_object(line: str, where: str) -> dict[str, Any]:
    row = parse_json(line, where, one_line=True)
    if not isinstance(row, dict):
        raise DataError("The line is no object.", where=where, got=_name(type(row)), expected="{...}")
    return row


def _malformed(where: str, error: json.JSONDecodeError) -> DataError:
    return DataError(
        "The JSON is malformed.", where=where, got=f"{error.msg} at column {error.colno}", hint="is the file complete?"
    )


def first_object(rows: Any) -> dict[str, Any]:
    """The first of a list of objects; an empty one where it is no such list."""
    return rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else {}


def value(row: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    """``row[key]``, which must be of ``kind``.

    Raises:
        DataError: absent or of another type.
    """
    if not isinstance(row, dict) or key not in row:
        got = ", ".join(map(str, row)) if isinstance(row, dict) else _name(type(row))
        raise DataError(f"The field {key!r} is missing.", where=where, got=got, expected=f"{key}: {_names(kind)}")
    found = row[key]
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is int):
        got = f"{shown(found)} ({_name(type(found))})"
        raise DataError(f"The field {key!r} has a wrong type.", where=where, got=got, expected=_names(kind))
    return found


def _names(kind: type | tuple[type, ...]) -> str:
    return " or ".join(dict.fromkeys(map(_name, kind if isinstance(kind, tuple) else (kind,))))


def _name(kind: type) -> str:
    return {dict: "an object", list: "a list", str: "text", int: "a number", float: "a number"}.get(kind, kind.__name__)


def parsed(cell: str) -> Any:
    """A cell's JSON value; the cell itself where it is none."""
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell


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


def as_object(row: Any) -> Any:
    """A row of a JSON table: a list as an object with the fields ``column1``, ``column2`` ..., anything else itself."""
    return {f"column{place}": cell for place, cell in enumerate(row, 1)} if isinstance(row, list) else row


def walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Every folder under ``folder``, itself included, and its files' names, both sorted.

    Links to folders are followed, since data sets are often linked; one that leads back to a folder it lies in is not.
    """
    for place, folders, names in os.walk(folder, followlinks=True):
        here = Path(place).resolve()
        inner = [name for name in folders if not here.is_relative_to(Path(place, name).resolve())]
        folders[:] = sorted(inner)
        yield Path(place), sorted(names)


def index_images(folder: Path) -> dict[str, list[Path]]:
    """Every picture under ``folder`` by its id (file name without extension), folders in sorted order."""
    found: dict[str, list[Path]] = {}
    for place, names in walk(folder):
        for name in names:
            stem, dot, suffix = name.rpartition(".")
            if dot and stem and f".{suffix.lower()}" in IMAGE_SUFFIXES:
                found.setdefault(stem, []).append(place / name)
    return found
