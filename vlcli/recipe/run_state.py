"""How far a run is: the state of all its stages, which the runner keeps in ``progress.json`` while the run lasts.

The runner writes the file at every change of a stage and about once a second in between; ``vlcli follow`` and ``vlcli
runs`` read it. The process that runs holds ``.progress.json.lock``, which the operating system releases when that
process ends, however it ends. A run that does all it was asked to removes the file: its stage records say the rest. A
run that fails or is stopped leaves the file with its exit code.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vlcli.recipe import stage_record

FILE = "progress.json"
LOCK = f".{FILE}.lock"
SCHEMA_VERSION = 1
_PATIENCE = 0.3
ENDED = ("done", "unchanged", "reused", "passed over", "failed", "blocked", "stopped")
"""States of a stage after which nothing more happens to it."""


@dataclass
class Work:
    """One long step of a stage that is under way: training, a validation, the drawing of images.

    Attributes:
        label: what the stage calls the step.
        unit: what it counts.
        total: units altogether; None: unknown.
        done: units that are done.
        start: units that an earlier run had done.
        began: when, seconds since 1970.
        facts: loss, metrics and rates that the stage reported last.
    """

    label: str
    unit: str = "it"
    total: int | None = None
    done: int = 0
    start: int = 0
    began: float = 0.0
    facts: dict[str, float | str] = field(default_factory=dict)

    def rate(self, now: float) -> float:
        """Units per second since the step began; 0 while nothing is done."""
        return max(0, self.done - self.start) / max(now - self.began, 1e-9)

    def left(self, now: float) -> float | None:
        """Seconds until the step is done at its mean rate; None where that is unknown."""
        rate = self.rate(now)
        if self.total is None or rate <= 0:
            return None
        return max(0.0, (self.total - self.done) / rate)


@dataclass
class StageState:
    """How far one stage is.

    Attributes:
        name: the stage.
        kind: its kind.
        status: ``waiting``, ``running``, or one of :data:`ENDED`.
        why: in a few words, why the stage runs, waits or is blocked.
        after: stages whose results it needs.
        began: when it began, seconds since 1970; 0: not yet.
        seconds: how long it took, once it has ended.
        work: steps that are under way, the outermost first.
        metrics: its numbers, once it has ended.
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
        """Whether nothing more happens to this stage."""
        return self.status in ENDED

    def left(self, now: float) -> float | None:
        """Seconds until this stage ends, by what it or similar stages measured; None where that is unknown."""
        if self.ended:
            return 0.0
        rest = None if self.expected is None else max(0.0, self.expected - (now - self.began if self.began else 0.0))
        if self.status != "running" or not self.work:
            return rest
        outer = self.work[0].left(now)
        return rest if outer is None else outer


@dataclass
class RunState:
    """How far a run is.

    Attributes:
        recipe: its name.
        folder: the run folder.
        stages: in the recipe's order.
        jobs: stages that may run at the same time.
        pid: the process that runs.
        host: the machine of that process.
        began: when, seconds since 1970.
        updated: when this was last written.
        status: ``running``, ``failed`` or ``stopped``; ``done`` is never written to the file.
        code: exit code, once the run has ended.
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
        """The stage of this name.

        Raises:
            KeyError: the run has no such stage.
        """
        return {stage.name: stage for stage in self.stages}[name]


def write(folder: Path, state: RunState) -> None:
    """Write ``progress.json`` in one go; a disk that is full or gone is no reason for a run to fail.

    The content is not flushed to the disk, since a run writes it every second and a power cut makes it worthless.
    """
    state.updated = time.time()
    beside = folder / f".{FILE}.tmp-{os.getpid()}-0"
    with contextlib.suppress(OSError):
        beside.write_text(json.dumps(asdict(state), default=str), encoding="utf-8")
        beside.replace(folder / FILE)


def read(folder: Path) -> RunState | None:
    """The state of the run in ``folder``; None where there is none that can be read."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(RunState).validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError, RecursionError):
        return None


def remove(folder: Path) -> None:
    """Remove the file of a run that did all it was asked to."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)


_held: set[Path] = set()


@contextlib.contextmanager
def held(folder: Path, patience: float = _PATIENCE) -> Iterator[bool]:
    """Hold the folder of a run while the run lasts; yields False where another process holds it for longer.

    Args:
        folder: of the run; it is made.
        patience: seconds to wait for the other process; whoever looks holds the lock for a moment.
    """
    place = folder.absolute()
    if place in _held:  # by this process: rows that are the same run
        yield True
        return
    with stage_record.flocked(folder / LOCK, patience) as file:
        if file is None:
            yield False
            return
        _held.add(place)
        try:
            yield True
        finally:
            _held.discard(place)


def is_alive(folder: Path) -> bool:
    """Whether a process runs in ``folder`` (where the system can tell)."""
    if not (folder / LOCK).is_file():
        return False
    with contextlib.suppress(OSError), stage_record.flocked(folder / LOCK, shared=True) as file:
        return file is None
    return False


def seen(folder: Path) -> RunState | None:
    """The state as it is for whoever looks: a run whose process is gone without a word was stopped."""
    state = read(folder)
    if state is not None and state.status == "running" and not is_alive(folder):
        state = read(folder) or state  # it may have ended between the two looks
        if state.status == "running" and not is_alive(folder):
            state.status = "stopped"
            for stage in state.stages:
                stage.status = "stopped" if stage.status == "running" else stage.status
    return state
