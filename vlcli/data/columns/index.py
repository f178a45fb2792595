"""Opening a reader's examples from columns, which the first process that asks for them writes.

A folder of columns is keyed by what the reader was built with, by the code of its class and by the digests of its
files. It appears whole or not at all, under a lock: processes that want the same columns wait for the one that writes
them and open what it wrote. Columns of the same reader over former contents of its files are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from vlcli.data.columns.cells import UnwritableError, dumps, loads
from vlcli.data.columns.lock import locked
from vlcli.data.columns.places import Places, PlacesWriter
from vlcli.data.columns.reading import choose_rows, write_examples
from vlcli.data.columns.strings import write_numbers
from vlcli.data.columns.table import ColumnExamples, ExamplesWriter
from vlcli.data.files import walk
from vlcli.errors import DataError, UsageError, shown
from vlcli.files import new_folder, sweep, write_json
from vlcli.recipe.digests import data_digests

FORMAT = 2
"""Of the folders; another number has other keys."""
SMALLEST = "VLCLI_COLUMNS_MB"
_USUAL_MB = 16
_HINT = f"choose another output folder, or keep examples in memory: {SMALLEST}=1000000"
META, STATE, DIGESTS = "columns.json", "state.json", "digests.json"
_OWN = frozenset(
    {"_examples", "_paths", "_finder", "left_out", "_places", "cache", "weight", "augments", "spec_in_recipe"}
)
"""Attributes of readers that neither decide which examples they have nor are made by reading them."""


def smallest() -> int:
    """Bytes of source files from which on examples become columns: 16 MB, or what ``VLCLI_COLUMNS_MB`` says.

    Raises:
        UsageError: the variable holds no number.
    """
    said = os.environ.get(SMALLEST, "")
    if said and not (said.isascii() and said.isdigit() and len(said) < 10):
        raise UsageError(f"{SMALLEST} is no number.", got=shown(said), expected="megabytes, such as 64")
    return int(said or _USUAL_MB) * 10**6


def opened(reader: Any) -> ColumnExamples | None:
    """A reader's examples from columns under ``reader.cache``, written first where they are not there.

    The reader is left as if it had read its files. None where columns are not for it: no cache, small files, a reader
    that looks at folders, or something that cannot be written.

    Raises:
        DataError: a file is malformed, or changed while it was read.
        VlcliError: the disk is full.
    """
    if reader.cache is None or reader.reads_folders:
        return None
    files = reader.files()
    if not files or sum(file.stat().st_size for file in files) < smallest():
        return None
    try:
        before = _state(reader)
    except UnwritableError:
        return None
    slot = _slot(reader, before)
    return _there(reader, slot, files) or _made(reader, slot, files, before)


def _there(reader: Any, slot: str, files: list[Path]) -> ColumnExamples | None:
    """The columns, where all digests are known and the folder is whole; no file is read, and no lock is waited for."""
    known = _known(reader.cache)
    rows = [known.get(_identity(file)) for file in files]
    if None in rows:
        return None
    folder = reader.cache / _name(slot, [row["digest"] for row in rows if row])
    return _open(reader, folder) if is_whole(folder) else None


def _made(reader: Any, slot: str, files: list[Path], before: dict[str, bytes]) -> ColumnExamples | None:
    with locked(reader.cache, _HINT):
        found = _there(reader, slot, files)  # another process may have written it meanwhile
        if found is not None:
            return found
        sweep(reader.cache)
        digests = _digests(reader.cache, files)
        folder = reader.cache / _name(slot, digests)
        if not is_whole(folder):
            try:
                reader._with_ids(lambda: _write(reader, folder, files, before))
            except UnwritableError:
                return None
            _remove_former(folder, slot)
    return _open(reader, folder)


def _write(reader: Any, folder: Path, files: list[Path], before: dict[str, bytes]) -> None:
    identities = [_identity(file) for file in files]
    folders = {str(place): state_of(place) for one in reader.listed_folders() for place in _below(one)}
    with new_folder(folder) as beside:
        with PlacesWriter(beside, reader.image_folder, reader._two_files) as places:
            with ExamplesWriter(beside) as writer:
                write_examples(reader, writer, places)
            places.finish()
        chosen = choose_rows(reader, beside)
        if chosen is not None:
            write_numbers(beside / "rows", chosen)
        if [_identity(file) for file in files] != identities:
            raise DataError(
                "A file of the data set changed while it was read.",
                where=", ".join(map(str, files[:3])),
                expected="files that nobody writes to",
                hint="run the same command again once they are complete",
            )
        after = {name: value for name, value in _state(reader).items() if before.get(name) != value}
        state = {name: loads(value) for name, value in after.items()}
        (beside / STATE).write_bytes(dumps({"attributes": state, "left_out": reader.left_out}))
        sizes = {path.name: path.stat().st_size for path in sorted(beside.iterdir())}
        write_json(beside / META, {"format": FORMAT, "reader": reader.label, "files": sizes, "folders": folders})


def _open(reader: Any, folder: Path) -> ColumnExamples:
    """The examples, and the reader as reading left it."""
    found: dict[str, Any] = loads((folder / STATE).read_bytes())
    vars(reader).update(found["attributes"])
    reader.left_out.clear()
    reader.left_out.update(found["left_out"])
    reader._paths = Places(folder, reader.image_folder)
    return ColumnExamples(folder)


def is_whole(folder: Path) -> bool:
    """Whether a folder of columns has all its files, in their sizes, and folders that were listed are as they were."""
    try:
        meta = json.loads((folder / META).read_bytes())
        whole = all((folder / name).stat().st_size == size for name, size in meta["files"].items())
        listed = all(state_of(Path(place)) == state for place, state in meta["folders"].items())
        return bool(meta["format"] == FORMAT) and whole and listed
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def state_of(folder: Path) -> list[int]:
    """What changes when a file is added to a folder or removed from it; of a file, when it is written."""
    try:
        found = folder.stat()
        return [found.st_mtime_ns, found.st_ino, found.st_size]
    except OSError:
        return []


def _below(folder: Path) -> list[Path]:
    """A folder, and those in it."""
    return [folder, *(place for place, _ in walk(folder) if place != folder)]


def _state(reader: Any) -> dict[str, bytes]:
    """A reader's attributes, written.

    Raises:
        UnwritableError: one is of a kind that cannot be.
    """
    return {name: dumps(value) for name, value in vars(reader).items() if name not in _OWN}


def _slot(reader: Any, state: dict[str, bytes]) -> str:
    """What a reader is, its files' contents left out."""
    hashed = hashlib.sha256(f"{FORMAT}".encode())
    for part in (
        *_code(cast(Any, type(reader))),
        *(name.encode() + b"=" + value for name, value in sorted(state.items())),
    ):
        hashed.update(hashlib.sha256(part).digest())
    return hashed.hexdigest()[:16]


@lru_cache(256)
def _code(kind: Any) -> tuple[bytes, ...]:
    """Names and modules' contents of a class and of those it extends."""
    found = []
    for one in kind.__mro__[:-1]:
        found.append(f"{one.__module__}.{one.__qualname__}".encode())
        with contextlib.suppress(OSError, TypeError):
            found.append(Path(inspect.getfile(one)).read_bytes())
    return tuple(found)


def _name(slot: str, digests: Sequence[str]) -> str:
    return f"{slot}-{hashlib.sha256(' '.join(digests).encode()).hexdigest()[:16]}"


def _remove_former(folder: Path, slot: str) -> None:
    for other in folder.parent.glob(f"{slot}-*"):
        if not other.name.startswith(folder.name):
            shutil.rmtree(other, ignore_errors=True)
            other.unlink(missing_ok=True) if other.is_file() else None


Identity = tuple[str, int, int, int]


def _identity(file: Path) -> Identity:
    stat = file.stat()
    return str(file.absolute()), stat.st_size, stat.st_mtime_ns, stat.st_ino


def _rows(cache: Path) -> list[dict[str, Any]]:
    try:
        rows = json.loads((cache / DIGESTS).read_bytes())
        return [row for row in rows if {"path", "size", "mtime", "inode", "digest"} <= set(row)]
    except (OSError, ValueError, TypeError):
        return []


def _known(cache: Path) -> dict[Identity, dict[str, Any]]:
    return {(row["path"], row["size"], row["mtime"], row["inode"]): row for row in _rows(cache)}


def _digests(cache: Path, files: list[Path]) -> list[str]:
    """The files' digests, and a note of them beside the columns; called with the lock held."""
    former = _rows(cache)
    rows = data_digests(files, former)
    paths = {row["path"] for row in rows}
    write_json(cache / DIGESTS, [*(row for row in former if row["path"] not in paths), *rows])
    return [row["digest"] for row in rows]


def remembered(examples: ColumnExamples, name: str, key: Iterable[Any]) -> Path:
    """Where a fact about the examples that hangs on ``key`` is kept, beside their columns."""
    hashed = hashlib.sha256(json.dumps([name, *key], default=str).encode()).hexdigest()[:16]
    return examples.folder.with_name(f"{examples.folder.name}.{name}-{hashed}")
