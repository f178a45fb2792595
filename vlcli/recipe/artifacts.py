"""Whether the files of a finished stage are still there: their sizes, noted when it ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from vlcli.recipe.stage_record import StageRecord

LIGHT = frozenset({"checkpoints", "log", "curve", "errors"})
"""Roles of files that no result hangs on: a stage is not made again for their sake."""
_MANY = 100
_LONGEST_HEADER = 10**8  # of safetensors
_SUPERBLOCK = 48


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


def lost(folder: Path, record: StageRecord) -> str:
    """What of a finished stage is gone or cut, in words; empty where all is there. What has grown is not cut.

    Records of earlier versions hold no sizes: there it counts what weights and stores say of their own length.
    """
    known = record.sizes or _said(folder, record.files)
    for name, size in known.items():
        path = folder / name
        if not path.exists():
            return f"{name} is gone"
        now = len(list(path.iterdir())) if name.endswith("/") else path.stat().st_size if path.is_file() else size
        if now < size:
            unit = "files" if name.endswith("/") else "bytes"
            return f"{name} is cut: {now:,} of {size:,} {unit}"
    return ""


def _said(folder: Path, files: dict[str, str]) -> dict[str, int]:
    named = {name: 0 for role, name in files.items() if role not in LIGHT}
    inside = sizes(folder, files)
    return named | {name: _own_length(folder / name) for name in inside if not name.endswith("/")}


def _own_length(path: Path) -> int:
    read = {".safetensors": _safetensors_length, ".h5": _hdf5_length}.get(path.suffix)
    try:
        with path.open("rb") as file:
            return read(file) if read else 0
    except (OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return 0  # whoever reads the file tells what is wrong with it


def _safetensors_length(file: BinaryIO) -> int:
    first = file.read(8)
    start = 8 + int.from_bytes(first, "little") * (len(first) == 8)
    if start > _LONGEST_HEADER:
        return 0
    header = file.read(start - 8)
    if len(first) < 8 or len(header) < start - 8:
        return start
    tensors = [row for name, row in json.loads(header).items() if name != "__metadata__"]
    return start + max((int(row["data_offsets"][1]) for row in tensors), default=0)


def _hdf5_length(file: BinaryIO) -> int:
    head = file.read(_SUPERBLOCK)
    if len(head) < _SUPERBLOCK:
        return _SUPERBLOCK
    place = {0: 40, 2: 28, 3: 28}.get(head[8]) if head.startswith(b"\x89HDF\r\n\x1a\n") else None
    return int.from_bytes(head[place : place + 8], "little") if place else 0
