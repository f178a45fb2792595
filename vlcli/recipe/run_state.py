"""Reads and writes ``progress.json``, the state of a run and its stages; holds the run's lock.

The runner writes the file at every change of a stage and about once a second in between. A run that succeeds removes
it; one that fails or is stopped leaves it with its exit code.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vlcli.files import flocked

FILE = "progress.json"
LOCK = f".{FILE}.lock"
SCHEMA_VERSION = 1
_PATIENCE = 0.3
_ENDED = ("done", "unchanged", "reused", "passed over", "failed", "blocked", "stopped")  # final states of a stage


@dataclass
class Work:
    """One long step of a stage: training, a validation, the drawing of images.

    Attributes:
        total: units altogether; None: unknown.
        start: units that an earlier run had done.
        began: seconds since 1970.
        facts: what the stage reported last: loss, metrics, rates.
    """

    label: str
    unit: str = "it"
    total: int | None = None
    done: int = 0
    start: int = 0
    began: float = 0.0
    facts: dict[str, float | str] = field(default_factory=dict)

    def rate(self, now: float) -> float:
        """Returns the units per second since the step began; 0 while nothing is done."""
        return max(0, self.done - self.start) / max(now - self.began, 1e-9)

    def left(self, now: float) -> float | None:
        """Returns the seconds until the step is done at its mean rate; None if unknown."""
        rate = self.rate(now)
        return None if self.total is None or rate <= 0 else max(0.0, (self.total - self.done) / rate)


@dataclass
class StageState:
    """State of one stage.

    Attributes:
        status: ``waiting``, ``running``, or its end, such as ``done``, ``passed over`` or ``failed``.
        after: stages whose results it needs.
        began: seconds since 1970; 0: not yet.
        work: steps that are running, the outermost first.
        expected: seconds that similar stages took; None: nothing similar was measured.
    """

    name: str
    kind: str
    status: str = "waiting"
    why: str = ""
    after: list[str] = field(default_factory=list)
    began: float = 0.0
    seconds: float = 0.0
    work: list[Work] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    expected: float | None = None

    @property
    def ended(self) -> bool:
        return self.status in _ENDED

    def left(self, now: float) -> float | None:
        """Returns the seconds until this stage ends, by its own rate or similar stages; None if unknown."""
        if self.ended:
            return 0.0
        rest = None if self.expected is None else max(0.0, self.expected - (now - self.began if self.began else 0.0))
        outer = self.work[0].left(now) if self.status == "running" and self.work else None
        return rest if outer is None else outer


@dataclass
class RunState:
    """State of a run, its stages in the recipe's order.

    Attributes:
        jobs: stages that may run at the same time.
        began: seconds since 1970, as ``updated``.
        status: ``running``, ``failed`` or ``stopped``; ``done`` is never written to the file.
        code: exit code of a run that has ended.
    """

    recipe: str
    folder: str
    stages: list[StageState] = field(default_factory=list)
    jobs: int = 1
    pid: int = 0
    host: str = ""
    began: float = 0.0
    updated: float = 0.0
    status: str = "running"
    code: int = 0
    schema_version: int = SCHEMA_VERSION

    def stage(self, name: str) -> StageState:
        return {stage.name: stage for stage in self.stages}[name]


def write(folder: Path, state: RunState) -> None:
    """Writes ``progress.json`` atomically, without flushing; a full or absent disk does not fail the run."""
    state.updated = time.time()
    beside = folder / f".{FILE}.tmp-{os.getpid()}-0"
    with contextlib.suppress(OSError):
        text = json.dumps(asdict(state), default=str, ensure_ascii=False)
        beside.write_text(text, encoding="utf-8", errors="replace")  # names of files that are not UTF-8 cannot be read
        beside.replace(folder / FILE)


def read(folder: Path) -> RunState | None:
    """Returns the state of the run in ``folder``; None if there is none that can be read."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(RunState).validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError, RecursionError):
        return None


def remove(folder: Path) -> None:
    """Removes the file of a run that has succeeded."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


_held: set[Path] = set()


@contextlib.contextmanager
def held(folder: Path, patience: float = _PATIENCE) -> Iterator[bool]:
    """Holds the lock of a run's folder; yields False if another process holds it for more than ``patience`` seconds."""
    path = folder.absolute()
    if path in _held:  # by this process: rows that are the same run
        yield True
        return
    with flocked(folder / LOCK, patience) as file:
        if file is None:
            yield False
            return
        _held.add(path)
        try:
            yield True
        finally:
            _held.discard(path)


def is_alive(folder: Path) -> bool:
    """Returns True if a process runs in ``folder`` (False if the system has no locks)."""
    with contextlib.suppress(OSError):
        if (folder / LOCK).is_file():
            with flocked(folder / LOCK, shared=True) as file:
                return file is None
    return False


def seen(folder: Path) -> RunState | None:
    """Returns the state of the run in ``folder``; a run whose process is gone counts as stopped."""
    alive, state = is_alive(folder), read(folder)  # in this order: it may end between the two looks
    if state is not None and state.status == "running" and not alive and not is_alive(folder):
        state.status = "stopped"
        for stage in state.stages:
            stage.status = "stopped" if stage.status == "running" else stage.status
    return state
