"""Whether the files of a finished stage are still there: their sizes, noted when it ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vlcli.recipe.ledger import Record

LIGHT = frozenset({"checkpoints", "log", "curve", "errors"})
"""Roles of files that no result hangs on: a stage is not made again for their sake."""
_MANY = 100


def sizes(folder: Path, files: dict[str, str]) -> dict[str, int]:
    """Bytes of every file a stage made, by path in its folder; of a folder of very many (``images/``) their number."""
    found: dict[str, int] = {}
    for role, name in files.items():
        if role not in LIGHT:
            found |= dict(_measured(folder, Path(name)))
    return found


def _measured(folder: Path, name: Path) -> Iterator[tuple[str, int]]:
    path = folder / name
    if path.is_dir():
        inside = sorted(path.iterdir())
        if len(inside) > _MANY:
            yield f"{name.as_posix()}/", len(inside)
            inside = [other for other in inside if other.is_dir()]
        for other in inside:
            yield from _measured(folder, name / other.name)
    elif path.is_file():
        yield name.as_posix(), path.stat().st_size


def lost(folder: Path, record: Record) -> str:
    """What of a finished stage is gone or cut, in words; empty where all is there. What has grown is not cut.

    Records of earlier versions hold no sizes: there it counts whether the files are there at all.
    """
    known = record.sizes or {name: 0 for role, name in record.files.items() if role not in LIGHT}
    for name, size in known.items():
        path = folder / name
        if not path.exists():
            return f"{name} is gone"
        now = len(list(path.iterdir())) if name.endswith("/") else path.stat().st_size if path.is_file() else size
        if now < size:
            unit = "files" if name.endswith("/") else "bytes"
            return f"{name} is cut: {now:,} of {size:,} {unit}"
    return ""
