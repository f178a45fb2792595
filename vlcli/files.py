"""Writes files and folders atomically: under another name, flushed to the disk, then renamed; locks folders.

The other name is ``.NAME.tmp-PROCESS-THREAD``, so that two writers do not collide and :mod:`vlcli.recipe.leftovers`
finds what a killed process leaves.
"""

import errno
import json
import math
import os
import re
import shutil
import stat
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from vlcli import stopping
from vlcli.errors import DataError, VlcliError


@contextmanager
def locked(folder: Path, hint: str = "choose another output folder") -> Iterator[None]:
    """Create the folder and hold its lock, waiting for whoever holds it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(flocked(folder / ".lock", math.inf))
        except OSError as error:
            what = "A folder for what is kept between runs cannot be written to."
            raise DataError(what, where=str(folder), got=str(error), hint=hint) from None
        yield


@contextmanager
def flocked(path: Path, patience: float = 0.0, *, shared: bool = False) -> Iterator[TextIO | None]:
    """Holds a lock file, with this process's id; yields None if another holds it for ``patience`` seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r" if shared and path.is_file() else "a+", encoding="utf-8") as file:  # it may be another user's
        try:
            import fcntl
        except ImportError:  # no such lock on this system: go on without
            yield file
            return
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    yield None
                    return
                time.sleep(0.02)
            except OSError:  # a file system without locks: each writes beside and renames
                break
        if not shared:
            with suppress(OSError):  # the number serves messages only: what is cached can be read from a full disk
                file.truncate(0)
                os.write(file.fileno(), str(os.getpid()).encode())
        yield file


__all__ = ["cached_repository", "new_folder", "write_bytes", "write_json", "write_text", "written"]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_RUN_FILES = {"recipe.yaml", "stage.json"}
_ADDRESS = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_remote(path: str) -> bool:
    """Returns True if a recipe's path is an address (``s3://...``)."""
    return _ADDRESS.match(path) is not None


def walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yields every folder under ``folder``, itself included, and its files' names, both sorted.

    Links to folders are followed, except one that leads back to a folder it lies in. Folders of runs and stages inside
    data are passed over, and so are hidden folders, what macOS adds to archives (``__MACOSX``, ``._NAME``), and the
    thumbnails of Synology's ``@eaDir``.
    """
    for path, folders, names in os.walk(folder, followlinks=True):
        here = Path(path).resolve()
        if Path(path) != folder and not _RUN_FILES.isdisjoint(names):
            folders.clear()
            continue
        seen = (name for name in folders if not name.startswith(".") and name not in ("__MACOSX", "@eaDir"))
        folders[:] = sorted(name for name in seen if not here.is_relative_to(Path(path, name).resolve()))
        yield Path(path), sorted(name for name in names if not name.startswith("._"))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a full disk, a quota or a limit on sizes met while ``path`` is written into a VlcliError."""
    try:
        yield
    except Exception as error:
        codes = [code for code in FULL if f"os error {code}" in str(error)]  # safetensors has an error of its own
        code = error.errno if isinstance(error, OSError) else codes[0] if codes else None
        if code not in FULL:
            raise
        folder = path if path.is_dir() else path.parent
        free = shutil.disk_usage(folder).free if folder.exists() else 0
        what, first = "The disk is full", "free some space"
        if code == errno.EFBIG:
            what, first = "A file grew beyond the limit on its size", "raise the limit (ulimit -f)"
        where, got = str(path), f"{free / 2**20:,.0f} MB free ({str(error).strip()})"
        hint = f"{first} and run the same command again: it resumes from the last checkpoint"
        raise VlcliError(f"{what}; what was saved before is intact.", where=where, got=got, hint=hint) from error


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """Yields a sibling of ``final`` to fill, which replaces ``final`` when it is complete."""
    final.parent.mkdir(parents=True, exist_ok=True)
    beside, old = _beside(final), final.with_name(f".{final.name}.old-{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        with writing(final.parent):
            beside.mkdir()
            yield beside
            for path in (*sorted(beside.rglob("*")), beside):
                sync_file(path)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    with stopping.held():
        if final.exists():
            final.replace(old)
        beside.replace(final)
        sync_file(final.parent)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """Yields a sibling of ``path`` to write, which replaces it when complete; VlcliError: the disk is full."""
    beside = _beside(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with writing(path):
            yield beside
            put(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def put(beside: Path, path: Path) -> None:
    """Flushes a file to the disk and renames it."""
    sync_file(beside)
    with stopping.held():
        beside.replace(path)
        sync_file(path.parent)


def write_bytes(path: Path, content: bytes) -> Path:
    """Writes ``content`` to ``path`` atomically."""
    with written(path) as beside:
        beside.write_bytes(content)
    return path


def write_text(path: Path, text: str) -> Path:
    """Writes ``text`` as UTF-8 to ``path`` atomically; line ends stay, bytes of paths that are no UTF-8 are escaped."""
    return write_bytes(path, text.encode("utf-8", "backslashreplace"))


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp-{os.getpid()}-{threading.get_ident()}")


def sync_file(path: Path) -> None:
    """Flushes one file or folder to the disk, if the system lets a folder be opened."""
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


def write_json(path: Path, value: Any) -> Path:
    """``value`` as JSON at ``path``, replaced in one go."""
    return write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def checksum(path: Path) -> int:
    """CRC-32 of a file: finds truncation and flipped bits at the speed of the disk."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return value


def facts_of(path: Path) -> dict[str, int]:
    """Returns the size and checksum of a file."""
    return {"bytes": path.stat().st_size, "crc32": checksum(path)}


def is_whole(path: Path, facts: Mapping[str, int]) -> bool:
    """Returns True if a file exists and has the size and checksum ``facts``."""
    return path.is_file() and path.stat().st_size == facts["bytes"] and checksum(path) == facts["crc32"]


def sweep(folder: Path) -> None:
    """Removes half-written files of a killed process; restores what it had moved away and not replaced."""
    for path in folder.glob(".*.old-*"):
        final = path.with_name(path.name[1:].rpartition(".old-")[0])
        if final.name and not final.exists():
            path.replace(final)
    for path in [*folder.glob(".*.tmp-*"), *folder.glob(".*.old-*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def usual_mode(folder: Path) -> int:
    """Returns the permissions of a new file in ``folder``."""
    probe = folder / f".mode.tmp-{os.getpid()}"
    try:
        probe.touch()
        return stat.S_IMODE(probe.stat().st_mode)
    finally:
        probe.unlink(missing_ok=True)


def follow_mask(paths: Iterable[Path]) -> None:
    """Gives files (and those in folders) that only the owner may read the permissions of new files."""
    for file in (file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))):
        if file.is_file() and stat.S_IMODE(file.stat().st_mode) == 0o600:
            file.chmod(usual_mode(file.parent))


def cached_repository(name: str) -> Path | None:
    """Returns the newest snapshot of ``OWNER/NAME`` in the local cache of the Hugging Face hub, or None."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        return None
