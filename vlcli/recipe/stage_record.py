"""Reads and writes stage.json, the record of a stage, with the sizes of its files; holds the lock of a stage's folder.

The record is written last and atomically; ``.stage.json.copy``, written first, replaces a damaged one. The
*fingerprint* of a stage is its key (kind, config, inputs) with the content of the data files it read.
"""

import contextlib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vlcli import stopping
from vlcli.errors import VlcliError
from vlcli.files import flocked, write_text

FILE = "stage.json"
SCHEMA_VERSION = 2
COPY = ".stage.json.copy"
# Seconds to wait for another process that holds a lock
LOCK_PATIENCE = 3.0


@dataclass
class StageRecord:
    """The content of a ``stage.json``.

    Attributes:
        status: ``running``, ``done``, ``failed`` or ``skipped``.
        key: hash of kind, config and inputs.
        config: the resolved section of the recipe.
        inputs: fingerprint and path of every input stage, by name.
        data: digests of the data files it read outside its inputs.
        seed: None if the stage draws no random numbers.
        versions: of Python, torch, vlcli and the packages of its components.
        started: ISO 8601 UTC, as ``finished``.
        files: paths by role.
        sizes: as :func:`sizes` returns them.
        replaces: the folder that this stage replaces when it is done (``--force``).
        artifact: folder of the artifact if another run made it (relative to this folder).
    """

    stage: str
    kind: str
    status: str
    key: str
    config: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, dict[str, str]] = field(default_factory=dict)
    data: list[dict[str, Any]] = field(default_factory=list)
    root: str = ""
    features: list[str] = field(default_factory=list)
    recipe: str = ""
    seed: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    started: str = ""
    finished: str = ""
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    artifact: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    replaces: str = ""
    schema_version: int = SCHEMA_VERSION

    @property
    def fingerprint(self) -> str:
        return digest([self.key, [(row["path"], row["digest"]) for row in self.data]])


def digest(value: Any) -> str:
    """Returns the SHA-256 of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def read(folder: Path) -> StageRecord | None:
    """Reads the record of a stage folder; None if there is none that can be read."""
    if not has_record(folder):
        return None  # a user deletes it to run the stage again, the copy left
    return _read(folder / FILE) or _read(folder / COPY)


def _read(path: Path) -> StageRecord | None:
    # Not by pydantic, which refuses names of files that are not UTF-8, and metrics that are no numbers.
    try:
        raw = json.loads(path.read_bytes())
        record = StageRecord(**{name: value for name, value in raw.items() if name in StageRecord.__dataclass_fields__})
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    like = {name: value for name, value in vars(StageRecord("", "", "", "")).items() if name not in ("seed", "seconds")}
    sound = (
        all(isinstance(getattr(record, name), type(value)) for name, value in like.items())
        and all(isinstance(row, dict) for row in (*record.data, *record.inputs.values()))
        and all({"path", "size", "mtime", "digest"} <= row.keys() for row in record.data)
        and all(isinstance(name, str) for name in record.files.values())
        and all(isinstance(size, int) for size in record.sizes.values())
    )
    return record if sound else None


def has_record(folder: Path) -> bool:
    """Returns True if there is a record, readable or not."""
    return (folder / FILE).is_file()


def heal(folder: Path) -> str:
    """Restores a damaged record from its copy; returns a message, empty if the record is sound."""
    if not has_record(folder) or _read(folder / FILE) is not None:
        return ""
    record = _read(folder / COPY)
    if record is None:
        return f"{folder / FILE} cannot be read: what is in the folder is kept aside, and the stage is made again"
    write(folder, record)
    return f"{folder / FILE} was damaged: written again from its copy"


def write(folder: Path, record: StageRecord) -> None:
    """Writes ``stage.json`` atomically, its copy first."""
    for name in (COPY, FILE):
        with stopping.held():
            write_text(folder / name, json.dumps(asdict(record), indent=1, default=str))


def artifact(folder: Path, record: StageRecord) -> Path:
    """Returns the folder of the stage's files: its own, or that of the run that made them."""
    return Path(os.path.normpath(folder / record.artifact)) if record.artifact else folder


def finished(folder: Path) -> tuple[Path, StageRecord] | None:
    """Returns the artifact folder and its record if the stage in ``folder`` is done; follows reuse."""
    record = read(folder)
    if record is None or record.status != "done":
        return None
    if not record.artifact:
        return folder, record
    reused = artifact(folder, record)
    original = read(reused)
    if original is None or original.status != "done" or original.fingerprint != record.fingerprint:
        return None
    return reused, original


def made_in(folder: Path) -> Path:
    """Returns the artifact folder of a finished stage; ``folder`` itself if it is not finished."""
    done = finished(folder)
    return done[0] if done is not None else folder


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the lock of a stage folder; the operating system releases it when the process ends.

    Raises VlcliError: another process works in it, or on a stage that reads it.
    """
    # A run that was killed leaves worker processes that take a moment to notice: wait for those.
    with _held("Another vlcli is working on this stage.", folder, LOCK_PATIENCE):
        yield


@contextlib.contextmanager
def read_locked(folders: Iterable[Path]) -> Iterator[None]:
    """Keeps other processes from running these stages meanwhile. Raises VlcliError: another process works in one."""
    what = "Another vlcli is working on a stage that this one reads."
    with contextlib.ExitStack() as stack:
        for folder in folders:
            if os.access(folder.parent, os.W_OK):
                stack.enter_context(_held(what, folder, LOCK_PATIENCE, shared=True))
        yield


@contextlib.contextmanager
def writing_alone(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder of data while it is written. Raises VlcliError: another process writes it."""
    with _held("Another vlcli is writing this folder.", folder.absolute(), 0.0):
        yield


@contextlib.contextmanager
def _held(what: str, folder: Path, patience: float, *, shared: bool = False) -> Iterator[None]:
    with flocked(_lock(folder), patience, shared=shared) as file:
        if file is None:
            raise taken(what, folder, _lock(folder))
        yield


def is_held(folder: Path) -> bool:
    """Returns True if a process writes in the stage folder now (False if the system has no locks)."""
    with flocked(_lock(folder), shared=True) as file:
        return file is None


def _lock(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


def taken(what: str, where: Path, lock: Path) -> VlcliError:
    """Returns the error for a lock that another process holds."""
    who = lock.read_text(encoding="utf-8").strip()
    got, hint = f"process {who}" if who else "", "wait for it, or name another folder (of a run: --output DIR)"
    return VlcliError(what, where=str(where), got=got, hint=hint)


def aside(folder: Path) -> Path | None:
    """Renames a stage folder to ``<name>.old-N``; returns None if there was none, or one in which nothing was made."""
    if not folder.exists() or (folder.is_dir() and {path.name for path in folder.iterdir()} <= {COPY}):
        return None  # a process was killed before its first record
    names = (folder.with_name(f"{folder.name}.old-{number}") for number in itertools.count(1))
    return folder.rename(next(name for name in names if not name.exists()))


def finished_stages(output: Path) -> Iterator[tuple[Path, StageRecord]]:
    """Yields every finished stage made under an output folder, newest first, without reused ones."""
    folders = [file.parent for file in output.glob(f"*/*/{FILE}") if ".old-" not in file.parent.name]
    stages = [(folder, record) for folder in folders if (record := read(folder)) and not record.artifact]
    done = [(folder, record) for folder, record in stages if record.status == "done"]
    yield from sorted(done, key=lambda stage: stage[1].finished, reverse=True)


def earlier(output: Path, source: str) -> Path | None:
    """Returns the folder that ``source`` names: itself, or RUN or RUN/STAGE under ``output``; None if there is none.

    RUN may be the recipe's name: ``tiny/lxmert/vqa`` is the folder ``tiny-lxmert/vqa`` under ``output``.
    """
    parts = re.sub(r"[^A-Za-z0-9._/-]+", "-", source).strip("/").split("/")  # a row: TABLE:ROW
    dashed = ["/".join(["-".join(parts[:end]), *parts[end:]]) for end in range(len(parts), 1, -1)]
    folders = [Path(source).expanduser(), *(output / name for name in [source, *dashed])]
    return max((folder for folder in folders if folder.exists()), key=Path.is_dir, default=None)


def similar(output: Path, source: str) -> str:
    """Returns a hint at the stages ``RECIPE-DIGEST/STAGE`` of runs with overrides, for ``source`` RECIPE/STAGE."""
    recipe, _, stage = source.strip("/").removeprefix(f"{output}/").partition("/")
    stages = [folder for folder, record in finished_stages(output) if folder.name == (stage or record.stage)]
    near = [folder for folder in stages if folder.parent.name.startswith(f"{recipe}-")] if recipe else []
    return f"did you mean {' or '.join(map(str, near[:3]))}?" if near else ""


# Roles of files whose loss does not make a stage run again.
_LIGHT = frozenset({"checkpoints", "log", "curve", "errors"})
_MANY = 100


def sizes(folder: Path, files: dict[str, str]) -> dict[str, int]:
    """Returns the bytes of every file of a stage by path; of a folder of many files (``images/``) their number."""
    names = [Path(name) for role, name in files.items() if role not in _LIGHT]
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
