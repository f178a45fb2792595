"""A run folder as it lies on disk, finished or not: its recipe, its stages, and what is missing or damaged.

Nothing here loads a model; files that cannot be read become a line of ``faults`` and nothing more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from vlcli.errors import DataError, VlcliError, shown
from vlcli.metrics.clustered import Clusters
from vlcli.metrics.clusters import read_clusters
from vlcli.metrics.rows import read_lines
from vlcli.recipe import stage_record, yaml
from vlcli.recipe.stage_record import StageRecord

RECIPE, REPORT = "recipe.yaml", "report.html"
"""Files in a run's folder: its recipe, and the page that shows it."""
_NAME = re.compile(r"[^./][^/]*")


@dataclass
class StageFacts:
    """One stage of a run.

    Attributes:
        name: in the recipe.
        kind: of the stage; empty where neither recipe nor record says it.
        state: ``done``, ``working``, ``stopped``, ``failed``, ``not begun``, ``damaged`` or ``lost``.
        folder: where its files lie; that of another run where the stage was reused.
        record: what it recorded; None where there is none that can be read.
        reused: whether another run made it.
        faults: what of it cannot be read, one sentence each.
    """

    name: str
    kind: str
    state: str
    folder: Path
    record: StageRecord | None = None
    reused: bool = False
    faults: list[str] = field(default_factory=list)

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers that the stage recorded, those that are finite or not, but no other values."""
        found = self.record.metrics if self.record is not None else {}
        return {n: float(v) for n, v in found.items() if isinstance(v, int | float) and not isinstance(v, bool)}

    @cached_property
    def predictions(self) -> list[dict[str, Any]]:
        """Rows of ``predictions.jsonl``; none where the stage writes none."""
        return self._lines("predictions")

    @cached_property
    def clusters(self) -> Clusters | None:
        """The cluster of each row of predictions; None where the images of the rows are not known."""
        path = self.file("images")
        return None if path is None else read_clusters(path.parent)

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """Lines of the training log, by step; none where the stage does not train."""
        rows = self._lines("log") or self._unfinished_log()
        return [row for row in rows if isinstance(row.get("step"), int)]

    def file(self, role: str) -> Path | None:
        """A file that the stage recorded, if it lies in the stage's folder."""
        name = self.record.files.get(role) if self.record is not None else None
        path = None if name is None else self.folder / name
        inside = path is not None and path.resolve().is_relative_to(self.folder.resolve())
        return path if inside and path is not None and path.exists() else None

    def _lines(self, role: str) -> list[dict[str, Any]]:
        if self.record is None or role not in self.record.files:
            return []
        path = self.file(role)
        if path is None:
            self.faults.append(f"{self.folder / self.record.files[role]} is missing.")
            return []
        return self._read(path)

    def _unfinished_log(self) -> list[dict[str, Any]]:
        """A stage that has not ended has recorded no files yet, and one that has not begun has none."""
        path = self.folder / "log.jsonl"
        return self._read(path) if self.state != "done" and path.is_file() else []

    def _read(self, path: Path) -> list[dict[str, Any]]:
        rows, damaged = read_lines(path)
        if damaged:
            self.faults.append(f"{path}: {damaged} of {damaged + len(rows)} lines are damaged and left out.")
        return rows


@dataclass
class RunFacts:
    """One run.

    Attributes:
        folder: the run's folder.
        label: what the run is called where several are shown.
        recipe: the recipe as it was run, without defaults; empty where its copy cannot be read.
        stages: by name, in the recipe's order.
        faults: what cannot be read, one sentence each.
    """

    folder: Path
    label: str
    recipe: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, StageFacts] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        """In a word: ``working``, ``failed``, ``damaged``, ``unfinished`` or ``done``."""
        states = {stage.state for stage in self.stages.values()}
        for state in ("working", "failed", "damaged"):
            if state in states:
                return state
        return "done" if states <= {"done", "passed over"} else "unfinished"

    @property
    def versions(self) -> dict[str, str]:
        """Versions of all packages that the stages recorded; several of one package stand side by side."""
        found: dict[str, dict[str, None]] = {}
        for stage in self.stages.values():
            for package, version in (stage.record.versions if stage.record is not None else {}).items():
                found.setdefault(package, {})[str(version)] = None
        return {package: ", ".join(versions) for package, versions in sorted(found.items())}

    def every_fault(self) -> list[str]:
        """Faults of the run, then of its stages."""
        return self.faults + [f"{s.name}: {fault}" for s in self.stages.values() for fault in dict.fromkeys(s.faults)]


def find_run(name: str, output: Path = Path("runs")) -> Path:
    """The folder that is meant: a path, or a name under the folder of all runs.

    Raises:
        DataError: neither is a run's or a stage's folder.
    """
    path = stage_record.earlier(output, name)
    if path is not None and path.is_dir():
        if is_run(path) or stage_record.has_record(path):
            return path
        raise DataError(
            "This folder holds no run.",
            where=str(path),
            expected=f"a folder with {RECIPE} or with stages (STAGE/{stage_record.FILE})",
            hint="list runs: vlcli runs",
        )
    hint = stage_record.similar(output, name) or "list runs: vlcli runs; make one: vlcli run quickstart"
    raise DataError("There is no such run.", got=name, expected=f"a folder, or a name under {output}/", hint=hint)


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run."""
    return (folder / RECIPE).is_file() or any(folder.glob(f"*/{stage_record.FILE}"))


def read_run(folder: Path) -> RunFacts:
    """A run's folder, or a stage's folder as a run of this stage alone."""
    if stage_record.has_record(folder) and not is_run(folder):
        run = RunFacts(folder, f"{folder.resolve().parent.name}/{folder.resolve().name}")
        run.recipe, _ = _recipe(folder.parent)
        run.stages[folder.resolve().name] = _stage(folder, {})
        return run
    run = RunFacts(folder, folder.resolve().name)
    run.recipe, fault = _recipe(folder)
    run.faults += [fault] if fault else []
    planned = run.recipe.get("stages")
    planned = planned if isinstance(planned, dict) else {}
    found = sorted(path for path in folder.iterdir() if stage_record.has_record(path) and ".old-" not in path.name)
    names = [str(name) for name in planned if _NAME.fullmatch(str(name))]
    stages = {name: _stage(folder / name, planned.get(name)) for name in names}
    others = [_stage(path, {}) for path in found if path.name not in stages]
    others.sort(key=lambda stage: stage.record.started if stage.record is not None else "")
    run.stages = stages | {stage.name: stage for stage in others}
    return run


def _recipe(folder: Path) -> tuple[dict[str, Any], str]:
    try:
        value = yaml.read(folder / RECIPE).value
    except VlcliError as error:
        missing = not (folder / RECIPE).is_file()
        return {}, f"{folder / RECIPE} {'is missing' if missing else 'cannot be read: ' + _first_line(error)}."
    if isinstance(value, dict):
        return value, ""
    return {}, f"{folder / RECIPE} is damaged: it holds {shown(value, 40)} in place of a recipe."


def _first_line(error: VlcliError) -> str:
    problems = getattr(error, "problems", [])
    return str(problems[0].what if problems else error.what).rstrip(".")


def _stage(folder: Path, planned: Any) -> StageFacts:
    record = stage_record.read(folder)
    kind = str(planned.get("kind", "")) if isinstance(planned, dict) else ""
    made = StageFacts(folder.name, kind, "not begun", folder, record)
    lock = folder.parent / f".{folder.name}.lock"
    held = lock.is_file() and stage_record.is_held(folder)
    if record is None:
        made.state = "working" if held else "damaged" if stage_record.has_record(folder) else "not begun"
        if made.state == "damaged":
            made.faults.append(f"{folder / stage_record.FILE} cannot be read.")
        return made
    made.kind, made.reused = record.kind or kind, bool(record.artifact)
    made.folder = stage_record.artifact(folder, record)
    made.state = {"running": "working" if held else "stopped"}.get(record.status, record.status)
    if made.reused and not made.folder.is_dir():
        made.state = "lost"
        made.faults.append(f"another run made this stage, and its folder {made.folder} is gone.")
    return made
