"""What runs leave in their folder: half-written files of killed processes, and what was moved aside."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import time

from vlcli.errors import VlcliError
from vlcli.recipe import run_state, stage_record, yaml
from vlcli.recipe.run_state import RunState
from vlcli.recipe.stage_record import StageRecord

HALF = re.compile(r"^\.(.+\.(tmp|old)-\d+(-\d+)?|.+\.\d+\.partial|.+\.part|(stage\.json|stage\.json\.copy)\.\d+)$")
"""Names under which files and folders of a stage are written before they are renamed."""
RECIPE = re.compile(r"^\.(?:recipe\.yaml|progress\.json)\.(?:tmp-)?(\d+)-\d+$")
ASIDE = re.compile(r"^(.+)\.old-\d+$")
UNSOUND = re.compile(r"^(damaged|left)-(step|best)-\d+(-\d+)?$")
_FRESH = 60.0


@dataclass(frozen=True)
class Litter:
    """Something that can go.

    Attributes:
        path: file or folder.
        size: bytes.
        why: what it is.
    """

    path: Path
    size: int
    why: str


@dataclass
class Run:
    """A run's folder.

    Attributes:
        folder: where.
        stages: state by stage: ``running`` while a process holds it, ``stopped`` where such a process is gone,
            ``not begun``, or the status of its record.
        size: bytes, litter included.
        changed: when its newest file was written, seconds since 1970.
        litter: what can go.
        progress: how far it is, where it runs or did not end well.
    """

    folder: Path
    stages: dict[str, str] = field(default_factory=dict)
    size: int = 0
    changed: float = 0.0
    litter: list[Litter] = field(default_factory=list)
    progress: RunState | None = None

    @property
    def state(self) -> str:
        """In a word: ``running``, ``failed``, ``stopped``, ``unfinished``, ``done`` or ``empty``.

        A stopped run was interrupted or killed; an unfinished one lacks stages that nobody asked for yet.
        """
        states = set(self.stages.values())
        states |= {self.progress.status} if self.progress is not None else set()
        for state in ("running", "failed", "stopped"):
            if state in states:
                return state
        if states <= {"not begun"}:
            return "empty"
        return "done" if states == {"done"} else "unfinished"


def sweep_stage(folder: Path) -> None:
    """Remove what killed processes left half written in a stage's folder, whose lock the caller holds."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if HALF.match(path.name):
            remove(path)


def sweep_run(folder: Path) -> None:
    """The same for the run's folder itself: files of processes that are gone."""
    for path in folder.iterdir() if folder.is_dir() else ():
        found = RECIPE.match(path.name)
        if found and _is_gone(int(found[1]), path):
            remove(path)


def sweep_replaced(folder: Path, record: StageRecord | None) -> None:
    """What a forced run has replaced goes when the new artifact stands, though a kill may have come between."""
    if record is not None and record.status == "done" and record.replaces:
        old = folder.with_name(record.replaces)
        if ASIDE.match(old.name) and old.is_dir():
            shutil.rmtree(old, ignore_errors=True)


def remove(path: Path) -> None:
    """A file, or a folder with all in it; one that is gone already is no matter."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def look(output: Path) -> list[Run]:
    """Every run's folder under ``output``, the one that changed last first."""
    folders = [path for path in output.iterdir() if path.is_dir()] if output.is_dir() else []
    runs = [
        look_at(path)
        for path in folders
        if (path / "recipe.yaml").is_file() or any(path.glob(f"*/{stage_record.FILE}"))
    ]
    return sorted(runs, key=lambda run: run.changed, reverse=True)


def _is_run(folder: Path) -> bool:
    return (folder / "recipe.yaml").is_file() or any(folder.glob(f"*/{stage_record.FILE}"))


def look_at(folder: Path) -> Run:
    """One run's folder."""
    run = Run(folder)
    run.size, run.changed = _measure(folder)
    alive = run_state.is_alive(folder)
    held = {path.name[1:-5] for path in folder.glob(".*.lock") if stage_record.is_held(folder / path.name[1:-5])}
    for path in sorted(folder.iterdir()):
        aside = ASIDE.match(path.name)
        stage = aside[1] if aside else path.name
        if stage not in held and not alive:
            run.litter += _litter(path)
        if path.is_dir() and not aside and (stage_record.has_record(path) or stage in held):
            run.stages[stage] = "running" if stage in held else _status(path)
    run.progress = run_state.seen(folder)
    run.stages = dict.fromkeys(_planned(folder), "not begun") | run.stages
    return run


def _planned(folder: Path) -> list[str]:
    try:
        stages = yaml.read(folder / "recipe.yaml").value["stages"]
    except (VlcliError, OSError, KeyError, TypeError):
        return []
    return [str(name) for name in stages] if isinstance(stages, dict) else []


def _status(folder: Path) -> str:
    record = stage_record.read(folder)
    if record is None:
        return "damaged"
    return "stopped" if record.status == "running" else record.status


def _litter(path: Path) -> Iterator[Litter]:
    found = RECIPE.match(path.name)
    if found and _is_gone(int(found[1]), path):
        yield Litter(path, _measure(path)[0], "half written by a process that is gone")
    elif ASIDE.match(path.name) and path.is_dir():
        record = stage_record.read(path)
        state = "a part" if record is None or record.status != "done" else f"made {record.finished[:16]}Z"
        yield Litter(path, _measure(path)[0], f"moved aside for a new one ({state})")
    elif path.is_dir() and not path.name.startswith("."):
        inside = [*path.iterdir(), *((path / "checkpoints").iterdir() if (path / "checkpoints").is_dir() else ())]
        for other in sorted(inside):
            if HALF.match(other.name):
                yield Litter(other, _measure(other)[0], "half written by a process that is gone")
            elif UNSOUND.match(other.name):
                left = other.name.startswith("left")
                why = "best weights of a run whose checkpoints were damaged" if left else "a damaged checkpoint"
                yield Litter(other, _measure(other)[0], why)


def _is_gone(process: int, path: Path) -> bool:
    try:
        if time() - path.stat().st_mtime < _FRESH:
            os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    else:
        return time() - path.stat().st_mtime >= _FRESH
    return False


def _measure(path: Path) -> tuple[int, float]:
    size, changed = 0, 0.0
    for file in [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]:
        try:
            found = file.lstat()
        except OSError:
            continue
        size += 0 if file.is_dir() and not file.is_symlink() else found.st_size
        changed = max(changed, found.st_mtime)
    return size, changed
