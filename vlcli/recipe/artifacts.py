"""Records the sizes of a stage's files when it ends, and finds files that are gone or cut since."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vlcli.recipe.stage_record import StageRecord

LIGHT = frozenset({"checkpoints", "log", "curve", "errors"})
"""Roles of files whose loss does not make a stage run again."""
_MANY = 100


def sizes(folder: Path, files: dict[str, str]) -> dict[str, int]:
    """Returns the bytes of every file of a stage by path; of a folder of many files (``images/``) their number."""
    names = [Path(name) for role, name in files.items() if role not in LIGHT]
    return {path: size for name in names for path, size in _measured(folder, name)}


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


def lost(folder: Path, record: StageRecord) -> str:
    """Returns what of a finished stage is gone or cut; empty if all is there. A file that has grown is not cut."""
    for name, size in record.sizes.items():
        path = folder / name
        if not path.exists():
            return f"{name} is gone"
        now = len(list(path.iterdir())) if name.endswith("/") else path.stat().st_size if path.is_file() else size
        if now < size:
            return f"{name} is cut: {now:,} of {size:,} {'files' if name.endswith('/') else 'bytes'}"
    return ""
