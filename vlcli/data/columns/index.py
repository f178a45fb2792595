"""Opens a reader's examples from columns, which the first process that asks for them writes.

A folder of columns is keyed by the reader's options, the code of its class and the digests of its files. It appears
whole or not at all, under a lock. Columns of the same reader over former contents of its files are removed.
"""

import contextlib
import hashlib
import inspect
import json
import shutil
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from vlcli.data.checks import check_keys, check_texts, empty
from vlcli.data.columns.cells import UnwritableError, dumps, loads
from vlcli.data.columns.picture_paths import PicturePaths, PicturePathsWriter
from vlcli.data.columns.table import ColumnExamples, ExamplesWriter
from vlcli.data.files import megabytes_of
from vlcli.data.holdout import select_rows
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.files import locked, new_folder, sweep, walk, write_json
from vlcli.recipe.digests import data_digests, read_files

# Version of the folders; another number has other keys.
FORMAT = 2
SMALLEST = "VLCLI_COLUMNS_MB"
_USUAL_MB = 16
_HINT = f"choose another output folder, or keep examples in memory: {SMALLEST}=1000000"
META, STATE, DIGESTS = "columns.json", "state.json", "digests.json"
# Attributes of readers that neither decide which examples they have nor are made by reading them.
_NO_PART = frozenset(
    {"_examples", "_paths", "_finder", "left_out", "_path_writer", "cache", "weight", "augments", "spec_in_recipe"}
)
_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError)
_PROPERTIES = ("path", "size", "mtime", "inode")


def smallest() -> int:
    """Return the bytes of source files from which on examples become columns: 16 MB, or ``VLCLI_COLUMNS_MB``."""
    megabytes = megabytes_of(SMALLEST, "megabytes, such as 64")
    return (_USUAL_MB if megabytes is None else megabytes) * 10**6


def opened(reader: Any) -> ColumnExamples | None:
    """Open a reader's examples from columns under ``reader.cache``, written first where they are not there.

    The reader is left as if it had read its files. None where columns do not serve: no cache, small files, a reader
    that looks at folders, or a value that cannot be written. Raises VlcliError: a file is malformed, or changed while
    it was read; or the disk is full.
    """
    if reader.cache is None or reader.reads_folders:
        return None
    files = read_files(reader)
    if not reader.files() or sum(file.stat().st_size for file in files) < smallest():
        return None
    try:
        before = _state(reader)
        options = (name.encode() + b"=" + value for name, value in sorted(before.items()))
        parts = (hashlib.sha256(part).digest() for part in (*_code(cast(Any, type(reader))), *options))
        slot = hashlib.sha256(str(FORMAT).encode() + b"".join(parts)).hexdigest()[:16]
        return _open_known(reader, slot, files) or _write_and_open(reader, slot, files, before)
    except UnwritableError:
        return None


def _open_known(reader: Any, slot: str, files: list[Path]) -> ColumnExamples | None:
    known = {tuple(row[name] for name in _PROPERTIES): row["digest"] for row in _noted_digests(reader.cache)}
    digests = [known.get(_identity(file)) for file in files]
    if None in digests:
        return None
    folder = reader.cache / _name(slot, digests)
    return _open(reader, folder) if is_whole(folder) else None


def _write_and_open(reader: Any, slot: str, files: list[Path], before: dict[str, bytes]) -> ColumnExamples:
    with locked(reader.cache, _HINT):
        sweep(reader.cache)
        noted = _noted_digests(reader.cache)
        rows = data_digests(files, noted)
        paths = {row["path"] for row in rows}
        write_json(reader.cache / DIGESTS, [*(row for row in noted if row["path"] not in paths), *rows])
        folder = reader.cache / _name(slot, [row["digest"] for row in rows])
        if not is_whole(folder):  # another process may have written it meanwhile
            reader._with_ids(lambda: _write(reader, folder, files, before))
            for other in folder.parent.glob(f"{slot}-*"):
                if not other.name.startswith(folder.name):
                    other.unlink(missing_ok=True) if other.is_file() else shutil.rmtree(other, ignore_errors=True)
    return _open(reader, folder)


def _write(reader: Any, folder: Path, files: list[Path], before: dict[str, bytes]) -> None:
    identities = [_identity(file) for file in files]
    listed = [below for one in reader.listed_folders() for below in (one, *(path for path, _ in walk(one)))]
    folders = {str(path): state_of(path) for path in listed}
    with new_folder(folder) as beside:
        with PicturePathsWriter(beside, reader.image_folder, reader._two_files) as paths:
            reader.left_out.clear()  # of an earlier attempt
            _write_examples(reader, beside, paths)
        if reader.take is not None:
            written = ColumnExamples(beside)
            rows = select_rows(written, reader.take, reader.root)[: reader.limit]
            if not rows:
                raise empty(reader, len(written))
            check_texts((written[row] for row in rows), reader._where())
            (beside / "rows").write_bytes(np.array(rows, np.int64).tobytes())
        if [_identity(file) for file in files] != identities:
            what = "A file of the data set changed while it was read."
            where, hint = ", ".join(map(str, files[:3])), "run the same command again once they are complete"
            raise DataError(what, where=where, expected="files that nobody writes to", hint=hint)
        after = {name: value for name, value in _state(reader).items() if before.get(name) != value}
        attributes = {name: loads(value) for name, value in after.items()}
        (beside / STATE).write_bytes(dumps({"attributes": attributes, "left_out": reader.left_out}))
        write_meta(beside, reader=reader.label, folders=folders)


def _write_examples(reader: Any, folder: Path, paths: PicturePathsWriter) -> None:
    where, hashes = reader._where(), array("q")
    with ExamplesWriter(folder) as writer:
        reader._path_writer = paths
        try:
            with reader._making_sense():
                for example in map(reader.with_ids, _streamed(reader)):
                    hashes.append(hash(example.key))
                    if reader.take is not None:
                        writer.append(example)  # checked once it is chosen
                    elif reader.limit is None or len(hashes) <= reader.limit:
                        check_texts((example,), where)
                        writer.append(example)
        finally:
            reader._path_writer = None
        for name, path in reader._paths.items():  # of readers that note them in the dictionary themselves
            paths.note(name, str(path))
        if not writer.count:
            raise empty(reader, len(hashes))
        check_keys(reader, hashes, lambda row: next(islice(_streamed(reader), row, None)))


def _streamed(reader: Any) -> Iterator[Example]:
    """Examples from ``stream``, unless a subclass of the class that defines it has another ``read``."""
    streams, reads = (next(one for one in type(reader).__mro__ if name in vars(one)) for name in ("stream", "read"))
    return reader.stream() if issubclass(streams, reads) else iter(reader.read())


def _open(reader: Any, folder: Path) -> ColumnExamples:
    state: dict[str, Any] = loads((folder / STATE).read_bytes())
    vars(reader).update(state["attributes"])
    reader.left_out.clear()
    reader.left_out.update(state["left_out"])
    reader._paths = PicturePaths(folder, reader.image_folder)
    return ColumnExamples(folder)


def write_meta(folder: Path, name: str = META, **facts: Any) -> None:
    """Write the list of a folder's files with their sizes, last of all, and ``facts``."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    write_json(folder / name, {"format": FORMAT, "files": sizes, **facts})


def is_whole(folder: Path, name: str = META) -> bool:
    """Whether a folder of columns has all its files, in their sizes, and listed folders are unchanged."""
    with contextlib.suppress(*_DAMAGED):
        meta = json.loads((folder / name).read_bytes())
        whole = all((folder / file).stat().st_size == size for file, size in meta["files"].items())
        return bool(meta["format"] == FORMAT) and whole and _unchanged(meta.get("folders", {}))
    return False


def _unchanged(folders: dict[str, list[int]]) -> bool:
    return all(state_of(Path(folder)) == state for folder, state in folders.items())


def state_of(folder: Path) -> list[int]:
    """Return what changes when a file is added to a folder or removed from it, or a file is written."""
    with contextlib.suppress(OSError):
        stat = folder.stat()
        return [stat.st_mtime_ns, stat.st_ino, stat.st_size]
    return []


def _state(reader: Any) -> dict[str, bytes]:
    return {name: dumps(value) for name, value in vars(reader).items() if name not in _NO_PART}


@lru_cache(256)
def _code(kind: Any) -> tuple[bytes, ...]:
    parts = []
    for one in kind.__mro__[:-1]:
        parts.append(f"{one.__module__}.{one.__qualname__}".encode())
        with contextlib.suppress(OSError, TypeError):
            parts.append(Path(inspect.getfile(one)).read_bytes())
    return tuple(parts)


def _name(slot: str, digests: Sequence[Any]) -> str:
    return f"{slot}-{hashlib.sha256(' '.join(digests).encode()).hexdigest()[:16]}"


def _identity(file: Path) -> tuple[str, int, int, int]:
    stat = file.stat()
    return str(file.absolute()), stat.st_size, stat.st_mtime_ns, stat.st_ino


def _noted_digests(cache: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return [row for row in json.loads((cache / DIGESTS).read_bytes()) if {*_PROPERTIES, "digest"} <= set(row)]
    return []


def remembered(examples: ColumnExamples, name: str, key: Iterable[Any]) -> Path:
    """Return the path for a fact about the examples that depends on ``key``, beside their columns."""
    hashed = hashlib.sha256(json.dumps([name, *key], default=str).encode()).hexdigest()[:16]
    return examples.folder.with_name(f"{examples.folder.name}.{name}-{hashed}")


_CHUNK = 1 << 16
# Absent pictures, and folders, that are noted; with more the look is taken anew.
_MOST_KEPT = 100_000
Absent = Callable[[list[str]], set[str]]


def absent_images(
    examples: ColumnExamples, absent: Absent, where: Callable[[str], Path] | None, key: Sequence[Any] | None
) -> set[str]:
    """Return the images of some examples that are not there, as ``absent`` says of lists of images.

    Args:
        where: gives an image's file: the answer is kept while the folders of these files keep their time of change.
            None: ``key`` says all.
        key: what else the answer depends on; None: unknown, and nothing is kept.
    """
    note = None if key is None else remembered(examples, "presence", key)
    with contextlib.suppress(*_DAMAGED):
        known = {} if note is None else json.loads(note.read_bytes())
        if known and _unchanged(known["folders"]):
            return set(known["absent"])
    missing: set[str] = set()
    folders: dict[str, list[int]] = {}
    for first in range(0, len(examples), _CHUNK):
        rows = range(first, min(first + _CHUNK, len(examples)))
        names = list(dict.fromkeys(name for row in rows for name in examples.image_names(row)))
        if where is not None and len(folders) < _MOST_KEPT:
            for folder in {str(where(name).parent) for name in names} - set(folders):
                folders[folder] = state_of(Path(folder))
        missing |= absent(names)
    if note is not None and len(missing) < _MOST_KEPT and len(folders) < _MOST_KEPT:
        with locked(examples.folder.parent):
            write_json(note, {"absent": sorted(missing), "folders": folders})
    return missing


def rows_without(examples: ColumnExamples, absent: set[str]) -> NDArray[np.int64]:
    """Return the numbers of the examples that have none of the images ``absent``."""
    return np.flatnonzero([absent.isdisjoint(examples.image_names(row)) for row in range(len(examples))])
