"""Records the picture files that a stage read, and finds those that have changed since.

``pictures.json.gz`` in the stage's folder lists size, times and, if all have :data:`HASHED` bytes at most, a hash of
each. A picture has changed if its size or content (without a hash, its modification time) differs. One row of
``StageRecord.data`` stands for all of them.
"""

import contextlib
import gzip
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from vlcli.files import is_remote, write_bytes
from vlcli.recipe.stage_record import digest

FILE = "pictures.json.gz"
# Pictures are hashed if all of a stage have at most this many bytes
HASHED = 256 * 2**20
_FRESH = 10.0
_looked: dict[str, tuple[float, str]] = {}
_watching: list[Callable[[Iterable[str]], None]] = []

Facts = tuple[int, int, int]
"""Size, modification time, and time of the last change to the file's entry (both in nanoseconds)."""


def note_pictures(paths: Iterable[Path | str]) -> None:
    """Adds picture files to the record of the running stage; called before they are read. Addresses are left out."""
    if _watching:
        _watching[-1](str(Path(path).absolute()) for path in paths if not is_remote(str(path)))


@contextlib.contextmanager
def noted(folder: Path, keep: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Lists the noted pictures in ``folder`` while the context lasts; ``keep`` gets the row of ``StageRecord.data``."""
    known: dict[str, tuple[Facts, str]] = {}

    def watch(paths: Iterable[str]) -> None:
        before = len(known)
        known.update({path: (facts, "") for path in paths if path not in known and (facts := _facts(path))})
        if len(known) == before:
            return
        size = sum(facts[0] for facts, _ in known.values())
        if size <= HASHED:
            known.update({path: (facts, content or _hash(path)) for path, (facts, content) in known.items()})
        base = os.path.commonpath([*known, Path(next(iter(known))).parent])
        rows = sorted((os.path.relpath(path, base), *facts, content) for path, (facts, content) in known.items())
        write_bytes(folder / FILE, gzip.compress(json.dumps({"folder": base, "pictures": rows}).encode(), 1, mtime=0))
        hashed = digest([(name, size, content or mtime) for name, size, mtime, _, content in rows])
        keep({"path": base, "size": size, "mtime": 0, "digest": hashed, "pictures": len(rows)})

    _watching.append(watch)
    try:
        yield
    finally:
        _watching.remove(watch)


def forget() -> None:
    """Forgets which pictures were compared."""
    _looked.clear()


def changed(folder: Path, row: dict[str, Any]) -> str:
    """Returns how the pictures of the stage in ``folder`` differ from the row of its record; empty if they do not."""
    key = f"{row['path']} {row['digest']}"
    when, why = _looked.get(key, (-_FRESH, ""))
    if time.monotonic() - when > _FRESH:  # stages that read the same pictures look at them once
        why = _why(folder / FILE)
        _looked[key] = time.monotonic(), why
    return why


def _why(file: Path) -> str:
    try:
        document = json.loads(gzip.decompress(file.read_bytes()))
        base, rows = f"{document['folder']}/", document["pictures"]
        others = [base + name for name, *facts, content in rows if _differs(base + name, tuple(facts), content)]
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return f"{file} cannot be read"
    if not others:
        return ""
    what = "has changed" if Path(others[0]).exists() else "is gone"
    more = f", and {len(others) - 1:,} more of {len(rows):,} pictures" if len(others) > 1 else ""
    return f"{others[0]} {what}{more}"


def _differs(path: str, facts: tuple[int, ...], content: str) -> bool:
    now = _facts(path)
    if now is None or now[0] != facts[0]:
        return True
    if now == facts:
        return False
    return _hash(path) != content if content else now[1] != facts[1]


def _facts(path: str) -> Facts | None:
    try:
        stat = Path(path).stat()
    except (OSError, ValueError):
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _hash(path: str) -> str:
    try:
        return hashlib.blake2b(Path(path).read_bytes(), digest_size=8).hexdigest()
    except OSError:
        return "unreadable"
