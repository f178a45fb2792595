"""Finds and removes what runs leave in their folder: half-written files, and folders that were moved aside."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import time

from vlcli.errors import VlcliError
from vlcli.recipe import run_state, stage_record, yaml
from vlcli.recipe.run_state import RunState
from vlcli.recipe.stage_record import StageRecord

# Names under which files and folders of a stage are written before they are renamed
HALF = re.compile(r"^\.(.+\.(tmp|old)-\d+(-\d+)?|.+\.\d+\.partial|.+\.part|(stage\.json|stage\.json\.copy)\.\d+)$")
RECIPE = re.compile(r"^\.(?:recipe\.yaml|progress\.json)\.(?:tmp-)?(\d+)-\d+$")
ASIDE = re.compile(r"^(.+)\.old-\d+$")
UNSOUND = re.compile(r"^(damaged|left)-(step|best)-\d+(-\d+)?$")
_FRESH = 60.0


@dataclass(frozen=True)
class Leftover:
    """A file or folder that can be deleted, its bytes, and what it is."""

    path: Path
    size: int
    why: str


@dataclass
class Run:
    """A run's folder.

    Attributes:
        stages: ``running`` while a process holds the stage, ``stopped`` if that process is gone, ``not begun``, or the
            status of the record.
        size: bytes, leftovers included.
        changed: time of its newest file, seconds since 1970.
    """

    folder: Path
    stages: dict[str, str] = field(default_factory=dict)
    size: int = 0
    changed: float = 0.0
    leftovers: list[Leftover] = field(default_factory=list)
    progress: RunState | None = None

    @property
    def state(self) -> str:
        """``running``, ``failed``, ``stopped`` (killed), ``done`` (what was asked), ``damaged`` or ``empty``."""
        states = {*self.stages.values(), *([self.progress.status] if self.progress is not None else [])}
        if states <= {"not begun"}:
            return "empty"
        usual = "done" if states <= {"done", "not begun"} else "damaged"
        return next((state for state in ("running", "failed", "stopped") if state in states), usual)


def sweep_stage(folder: Path) -> None:
    """Removes half-written files of killed processes from a stage's folder, whose lock the caller holds."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if HALF.match(path.name):
            remove(path)


def sweep_run(folder: Path) -> None:
    """Removes half-written files of processes that are gone from a run's folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if _is_orphan(path):
            remove(path)


def sweep_replaced(folder: Path, record: StageRecord | None) -> None:
    """Removes the stage that a forced run has replaced, once the new artifact is complete."""
    if record is not None and record.status == "done" and record.replaces:
        old = folder.with_name(record.replaces)
        if ASIDE.match(old.name) and old.is_dir():
            shutil.rmtree(old, ignore_errors=True)


def remove(path: Path) -> None:
    """Removes a file, or a folder with its content, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def look(output: Path) -> list[Run]:
    """Returns every run's folder under ``output``, the one that changed last first."""
    found = {file.parent for file in output.glob("*/recipe.yaml") if file.is_file()}
    found |= {file.parents[1] for file in output.glob(f"*/*/{stage_record.FILE}")}
    return sorted(map(look_at, sorted(found)), key=lambda run: run.changed, reverse=True)


def look_at(folder: Path) -> Run:
    """Reads one run's folder."""
    run = Run(folder)
    run.size, run.changed = _measure(folder)
    alive = run_state.is_alive(folder)
    held = {path.name[1:-5] for path in folder.glob(".*.lock") if stage_record.is_held(folder / path.name[1:-5])}
    for path in sorted(folder.iterdir()):
        aside = ASIDE.match(path.name)
        stage = aside[1] if aside else path.name
        if stage not in held and not alive:
            run.leftovers += [Leftover(one, _measure(one)[0], why) for one, why in _litter(path)]
        if path.is_dir() and not aside and (stage_record.has_record(path) or stage in held):
            record = stage_record.read(path)
            status = "damaged" if record is None else "stopped" if record.status == "running" else record.status
            run.stages[stage] = "running" if stage in held else status
    run.progress = run_state.seen(folder)
    with suppress(VlcliError, OSError, KeyError, TypeError):
        stages = yaml.read(folder / "recipe.yaml").value["stages"]
        if isinstance(stages, dict):
            run.stages = dict.fromkeys(map(str, stages), "not begun") | run.stages
    return run


def _litter(path: Path) -> Iterator[tuple[Path, str]]:
    half = "half written by a process that is gone"
    if _is_orphan(path):
        yield path, half
    elif ASIDE.match(path.name) and path.is_dir():
        record = stage_record.read(path)
        state = "a part" if record is None or record.status != "done" else f"made {record.finished[:16]}Z"
        yield path, f"moved aside for a new one ({state})"
    elif path.is_dir() and not path.name.startswith("."):
        for other in sorted([*path.iterdir(), *path.glob("checkpoints/*")]):
            if HALF.match(other.name):
                yield other, half
            elif UNSOUND.match(other.name):
                left = other.name.startswith("left")
                yield other, "best weights of a run whose checkpoints were damaged" if left else "a damaged checkpoint"


def _is_orphan(path: Path) -> bool:
    if (name := RECIPE.match(path.name)) is None:
        return False
    try:
        if time() - path.stat().st_mtime < _FRESH:
            os.kill(int(name[1]), 0)  # a fresh file may be of another machine's process
            return False
    except OSError as error:
        return isinstance(error, ProcessLookupError)
    return True


def _measure(path: Path) -> tuple[int, float]:
    size, changed = 0, 0.0
    for file in [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]:
        with suppress(OSError):
            stat = file.lstat()
            size += 0 if file.is_dir() and not file.is_symlink() else stat.st_size
            changed = max(changed, stat.st_mtime)
    return size, changed
