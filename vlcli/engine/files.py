"""Writing so that nothing is ever half written: beside, fsync, rename; a full disk is one message."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from vlcli import stopping
from vlcli.errors import VlcliError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk, met while ``path`` is written, into a message.

    Raises:
        VlcliError: no space is left (or a quota or a file size limit is met).
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        if not _is_full(error):
            raise
        folder = path if path.is_dir() else path.parent
        free = shutil.disk_usage(folder).free if folder.exists() else 0
        raise VlcliError(
            "The disk is full; what was saved before is intact.",
            where=str(path),
            got=f"{free / 2**20:,.0f} MB free ({str(error).strip()})",
            hint="free some space and run the same command again: it resumes from the last checkpoint",
        ) from error


def _is_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in FULL
    return any(f"os error {code}" in str(error) for code in FULL)


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A folder that appears under its final name complete or not at all; an older one there is replaced.

    Yields:
        A sibling of ``final`` to fill.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    beside = final.with_name(f".{final.name}.tmp-{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        with writing(final.parent):
            beside.mkdir()
            yield beside
            sync_folder(beside)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    _swap(beside, final)


def _swap(beside: Path, final: Path) -> None:
    old = final.with_name(f".{final.name}.old-{os.getpid()}")
    with stopping.held():
        if final.exists():
            final.replace(old)
        beside.replace(final)
        sync_file(final.parent)
        shutil.rmtree(old, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Push every file of ``folder`` (and the folders themselves) to the disk."""
    for path in sorted(folder.rglob("*")):
        sync_file(path)
    sync_file(folder)


def sync_file(path: Path) -> None:
    """Push one file or folder to the disk, where the system lets a folder be opened."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except (PermissionError, IsADirectoryError):
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """``value`` as JSON at ``path``, replaced in one go."""
    beside = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with writing(path):
            beside.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            sync_file(beside)
            beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def checksum(path: Path) -> int:
    """CRC-32 of a file: finds truncation and flipped bits at the speed of the disk."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return value


def sweep(folder: Path) -> None:
    """Remove what a killed process left half written; what it had moved away and not replaced yet comes back."""
    for path in folder.glob(".*.old-*") if folder.is_dir() else ():
        final = path.with_name(path.name[1:].rpartition(".old-")[0])
        if final.name and not final.exists():
            path.replace(final)
    for path in [*folder.glob(".*.tmp-*"), *folder.glob(".*.old-*")] if folder.is_dir() else ():
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def usual_mode(folder: Path) -> int:
    """The permissions that a new file in ``folder`` gets (from the process's mask, or the folder's own rules)."""
    probe = folder / f".mode.tmp-{os.getpid()}"
    try:
        probe.touch()
        return stat.S_IMODE(probe.stat().st_mode)
    finally:
        probe.unlink(missing_ok=True)


def follow_mask(paths: Iterable[Path]) -> None:
    """Give files (and those in folders) that were written for the owner alone the permissions new files get here."""
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))]
    for file in files:
        if file.is_file() and stat.S_IMODE(file.stat().st_mode) == 0o600:
            file.chmod(usual_mode(file.parent))
