"""``stage.json``: what a stage folder says about itself, and who is working in it.

A stage is done when its ``stage.json`` says so, written last and atomically. Its *fingerprint* is its key (kind,
config, inputs) together with the content of the data files it read, so that what builds on it notices when either
changed.

``.stage.json.copy`` is the same record a second time, written first: where one of the two is damaged, the other stands.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from vlcli import stopping
from vlcli.errors import VlcliError
from vlcli.files import write_text

FILE = "stage.json"
SCHEMA_VERSION = 2
COPY = ".stage.json.copy"
LOCK_PATIENCE = 3.0
"""Seconds that a process waits for another one that holds a lock."""


@dataclass
class StageRecord:
    """The content of a ``stage.json``.

    Attributes:
        stage: its name in the recipe.
        kind: its kind.
        status: ``running``, ``done``, ``failed`` or ``skipped``.
        key: hash of kind, config and inputs.
        config: the resolved section.
        inputs: fingerprint and path of every input stage, by name.
        data: digests of the data files it read outside its inputs.
        root: the data root.
        features: the feature stores it read.
        recipe: the recipe's name.
        seed: the seed it ran with; None where it draws nothing.
        versions: of Python, torch, vlcli and the packages of its components.
        started: when, ISO 8601 UTC.
        finished: when.
        seconds: time spent.
        metrics: numbers worth comparing.
        files: what it made, by role.
        notes: lines for the user.
        facts: anything else worth keeping.
        error: what went wrong.
        sizes: bytes of what it made, by path: see ``vlcli.recipe.artifacts``.
        replaces: the folder that this stage replaces when it is done (``--force``).
        artifact: where the artifact lies if another run made it (relative to this folder).
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
        """Key and data content in one."""
        content = [(row["path"], row["digest"]) for row in self.data]
        return digest([self.key, content])


def digest(value: Any) -> str:
    """Hash of plain data."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def read(folder: Path) -> StageRecord | None:
    """The record of a stage folder; None where there is none that can be read."""
    if not has_record(folder):
        return None  # who deletes it wants the stage made again
    return _read(folder / FILE) or _read(folder / COPY)


def _read(path: Path) -> StageRecord | None:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        record = StageRecord(**{name: value for name, value in raw.items() if name in StageRecord.__dataclass_fields__})
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    return record if _is_sound(record) else None


def _is_sound(record: StageRecord) -> bool:
    like = StageRecord("", "", "", "")
    given = {name: value for name, value in vars(record).items() if name not in ("seed", "seconds")}
    if not all(type(value) is type(getattr(like, name)) for name, value in given.items()):
        return False
    rows = all(isinstance(row, dict) and {"path", "size", "mtime", "digest"} <= set(row) for row in record.data)
    inputs = all(isinstance(row, dict) for row in record.inputs.values())
    names = all(isinstance(name, str) for name in record.files.values())
    return rows and inputs and names and all(isinstance(size, int) for size in record.sizes.values())


def has_record(folder: Path) -> bool:
    """Whether there is a record, readable or not."""
    return (folder / FILE).is_file()


def heal(folder: Path) -> str:
    """Write a damaged record again from its copy; what was done, in words, or why that is not possible."""
    if not has_record(folder) or _read(folder / FILE) is not None:
        return ""
    record = _read(folder / COPY)
    if record is None:
        return f"{folder / FILE} cannot be read: what is in the folder is kept aside, and the stage is made again"
    write(folder, record)
    return f"{folder / FILE} was damaged: written again from its copy"


def write(folder: Path, record: StageRecord) -> None:
    """Write ``stage.json`` so that it is either the old one or the new one, whole; its copy first."""
    for name in (COPY, FILE):
        with stopping.held():
            write_text(folder / name, json.dumps(asdict(record), indent=1, default=str))


def artifact(folder: Path, record: StageRecord) -> Path:
    """Where the stage's files lie: its folder, or that of the run that made them."""
    return Path(os.path.normpath(folder / record.artifact)) if record.artifact else folder


def finished(folder: Path) -> tuple[Path, StageRecord] | None:
    """The artifact folder and its record where the stage in ``folder`` is done (reuse followed)."""
    record = read(folder)
    if record is None or record.status != "done":
        return None
    if not record.artifact:
        return folder, record
    made = artifact(folder, record)
    original = read(made)
    if original is None or original.status != "done" or original.fingerprint != record.fingerprint:
        return None
    return made, original


def made_in(folder: Path) -> Path:
    """The folder with the files of the stage in ``folder``: its own, or that of the run that made them, as it was then.

    A folder without a record, and one whose maker is gone or has changed since, is returned as it is.
    """
    done = finished(folder)
    return done[0] if done is not None else folder


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the stage folder alone; the operating system lets go when the process ends, however it ends.

    Raises:
        VlcliError: another process works in it, or on a stage that reads it.
    """
    # A run that was killed leaves worker processes that take a moment to notice: wait for those.
    with flocked(_lock(folder), LOCK_PATIENCE) as file:
        if file is None:
            raise taken("Another vlcli is working on this stage.", folder, _lock(folder))
        yield


@contextlib.contextmanager
def read_locked(folders: Iterable[Path]) -> Iterator[None]:
    """Keep other processes from making these stages anew while this one reads them.

    Raises:
        VlcliError: another process works in one.
    """
    with contextlib.ExitStack() as stack:
        for folder in folders:
            if (
                os.access(folder.parent, os.W_OK)
                and stack.enter_context(flocked(_lock(folder), LOCK_PATIENCE, shared=True)) is None
            ):
                raise taken("Another vlcli is working on a stage that this one reads.", folder, _lock(folder))
        yield


@contextlib.contextmanager
def writing_alone(folder: Path) -> Iterator[None]:
    """Hold a folder of data while it is written.

    Raises:
        VlcliError: another process writes it.
    """
    lock = _lock(folder.absolute())
    with flocked(lock) as file:
        if file is None:
            raise taken("Another vlcli is writing this folder.", folder, lock)
        yield


def is_held(folder: Path) -> bool:
    """Whether a process works in the stage folder now (where the system can tell); reading it does not count."""
    with flocked(_lock(folder), shared=True) as file:
        return file is None


def _lock(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


@contextlib.contextmanager
def flocked(path: Path, patience: float = 0.0, *, shared: bool = False) -> Iterator[TextIO | None]:
    """Hold a lock file, which gets this process's id; yields None where another process holds it for longer.

    Args:
        path: the file; it and its folder are made.
        patience: seconds to wait for the other process.
        shared: let others hold it too that ask for no more.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
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
            except OSError:
                if time.monotonic() > until:
                    yield None
                    return
                time.sleep(0.02)
        if not shared:
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield file


def taken(what: str, where: Path, lock: Path) -> VlcliError:
    """The error, not raised, for a lock that another process holds."""
    who = lock.read_text(encoding="utf-8").strip()
    return VlcliError(
        what,
        where=str(where),
        got=f"process {who}" if who else "",
        hint="wait for it, or name another folder (of a run: --output DIR)",
    )


def aside(folder: Path) -> Path | None:
    """Move a stage folder out of the way as ``<name>.old-N``; None where there was none."""
    if not folder.exists():
        return None
    number = 1
    while (target := folder.with_name(f"{folder.name}.old-{number}")).exists():
        number += 1
    folder.rename(target)
    return target


def finished_stages(output: Path) -> Iterator[tuple[Path, StageRecord]]:
    """Every finished stage made under an output folder, newest first (reused ones are met where they were made)."""
    found = []
    for file in output.glob(f"*/*/{FILE}"):
        record = read(file.parent)
        if record is not None and record.status == "done" and not record.artifact and ".old-" not in file.parent.name:
            found.append((record.finished, file.parent, record))
    yield from ((folder, record) for _, folder, record in sorted(found, key=lambda row: row[0], reverse=True))


def earlier(output: Path, source: str) -> Path | None:
    """The folder that ``source`` names: itself, or RUN or RUN/STAGE under ``output``; None where there is none.

    A run may have its recipe's name: ``tiny/lxmert/vqa`` is the folder ``tiny-lxmert/vqa`` under ``output``.
    """
    parts = re.sub(r"[^A-Za-z0-9._/-]+", "-", source).strip("/").split("/")  # a row: TABLE:ROW
    dashed = ["/".join(["-".join(parts[:end]), *parts[end:]]) for end in range(len(parts), 1, -1)]
    folders = [Path(source).expanduser(), *(output / name for name in [source, *dashed])]
    there = [folder for folder in folders if folder.exists()]
    return next((folder for folder in there if folder.is_dir()), there[0] if there else None)


def similar(output: Path, source: str) -> str:
    """The stages ``RECIPE-.../STAGE`` that a changed recipe left where ``source`` is RECIPE/STAGE, newest first.

    A recipe run with overrides has a folder of its own, whose name ends in a digest of them.
    """
    recipe, _, stage = source.strip("/").removeprefix(f"{output}/").partition("/")
    found = [folder for folder, record in finished_stages(output) if folder.name == (stage or record.stage)]
    near = [folder for folder in found if folder.parent.name.startswith(f"{recipe}-")] if recipe else []
    return f"did you mean {' or '.join(map(str, near[:3]))}?" if near else ""
