"""Reads a run folder, finished or not, without loading a model; what cannot be read becomes a line of ``faults``."""

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
        kind: empty where neither recipe nor record says it.
        state: ``done``, ``working``, ``stopped``, ``failed``, ``not begun``, ``damaged`` or ``lost``.
        folder: of its files; that of another run where the stage was reused.
        faults: sentences about files that cannot be read.
    """

    name: str
    kind: str
    state: str
    folder: Path
    record: StageRecord | None = None
    reused: bool = False
    faults: list[str] = field(default_factory=list)

    @property
    def config(self) -> dict[str, Any]:
        return {} if self.record is None else self.record.config

    @property
    def metrics(self) -> dict[str, float]:
        """The record's metrics that are numbers, finite or not."""
        metrics = self.record.metrics if self.record is not None else {}
        return {n: float(v) for n, v in metrics.items() if isinstance(v, int | float) and not isinstance(v, bool)}

    @cached_property
    def predictions(self) -> list[dict[str, Any]]:
        return self._lines("predictions")

    @cached_property
    def clusters(self) -> Clusters | None:
        """The cluster of each row of predictions; None where the images of the rows are not known."""
        path = self.file("images")
        return None if path is None else read_clusters(path.parent)

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        rows, path = self._lines("log"), self.folder / "log.jsonl"
        if not rows and self.state != "done" and path.is_file():  # a stage that has not ended has recorded no files
            rows = self._read(path)
        return [row for row in rows if isinstance(row.get("step"), int)]

    def file(self, role: str) -> Path | None:
        if self.record is None or role not in self.record.files:
            return None
        path = self.folder / self.record.files[role]
        return path if path.exists() and path.resolve().is_relative_to(self.folder.resolve()) else None

    def _lines(self, role: str) -> list[dict[str, Any]]:
        if self.record is None or role not in self.record.files:
            return []
        path = self.file(role)
        if path is None:
            self.faults.append(f"{self.folder / self.record.files[role]} is missing.")
            return []
        return self._read(path)

    def _read(self, path: Path) -> list[dict[str, Any]]:
        rows, damaged = read_lines(path)
        if damaged:
            self.faults.append(f"{path}: {damaged} of {damaged + len(rows)} lines are damaged and left out.")
        return rows


@dataclass
class RunFacts:
    """One run.

    Attributes:
        label: name of the run where several are shown.
        recipe: the recipe as it was run, without defaults; empty where its copy cannot be read.
    """

    folder: Path
    label: str
    recipe: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, StageFacts] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        """``working``, ``failed``, ``damaged``, ``unfinished`` or ``done``."""
        states = {stage.state for stage in self.stages.values()}
        ended = "done" if states <= {"done", "passed over"} else "unfinished"
        return next((state for state in ("working", "failed", "damaged") if state in states), ended)

    @property
    def versions(self) -> dict[str, str]:
        """Versions of all packages that the stages recorded; several of one package stand side by side."""
        versions: dict[str, dict[str, None]] = {}
        for record in (stage.record for stage in self.stages.values() if stage.record is not None):
            for package, version in record.versions.items():
                versions.setdefault(package, {})[str(version)] = None
        return {package: ", ".join(several) for package, several in sorted(versions.items())}

    def every_fault(self) -> list[str]:
        return self.faults + [f"{s.name}: {fault}" for s in self.stages.values() for fault in dict.fromkeys(s.faults)]


def find_run(name: str, output: Path = Path("runs")) -> Path:
    """Return the folder of a path, or of a name under ``output``. Raises DataError: neither is a run's or a stage's."""
    path = stage_record.earlier(output, name)
    if path is not None and not is_run(path) and is_run(output / name):
        path = output / name  # a folder of data has the name of its recipe
    if path is not None and path.is_dir():
        if is_run(path) or stage_record.has_record(path):
            return path
        expected = f"a folder with {RECIPE} or with stages (STAGE/{stage_record.FILE})"
        raise DataError("This folder holds no run.", where=str(path), expected=expected, hint="list runs: vlcli runs")
    hint = stage_record.similar(output, name) or "list runs: vlcli runs; make one: vlcli run quickstart"
    raise DataError("There is no such run.", got=name, expected=f"a folder, or a name under {output}/", hint=hint)


def is_run(folder: Path) -> bool:
    """Return whether a folder is that of a run."""
    return (folder / RECIPE).is_file() or any(folder.glob(f"*/{stage_record.FILE}"))


def read_run(folder: Path) -> RunFacts:
    """Read a run's folder, or a stage's folder as a run of this stage alone."""
    name = folder.resolve().name
    if stage_record.has_record(folder) and not is_run(folder):
        label = f"{folder.resolve().parent.name}/{name}"
        return RunFacts(folder, label, _recipe(folder.parent)[0], {name: read_stage(folder)})
    recipe, fault = _recipe(folder)
    run = RunFacts(folder, name, recipe, faults=[fault] if fault else [])
    planned = recipe.get("stages")
    for stage, section in planned.items() if isinstance(planned, dict) else ():
        if _NAME.fullmatch(str(stage)):
            run.stages[str(stage)] = read_stage(folder / str(stage), section)
    paths = sorted(path for path in folder.iterdir() if stage_record.has_record(path) and ".old-" not in path.name)
    others = [read_stage(path) for path in paths if path.name not in run.stages]
    others.sort(key=lambda stage: "" if stage.record is None else stage.record.started)
    run.stages |= {stage.name: stage for stage in others}
    return run


def _recipe(folder: Path) -> tuple[dict[str, Any], str]:
    file = folder / RECIPE
    try:
        value = yaml.read(file).value
    except VlcliError as error:
        problems = getattr(error, "problems", [])
        reason = str(problems[0].what if problems else error.what).rstrip(".")
        return {}, f"{file} {'cannot be read: ' + reason if file.is_file() else 'is missing'}."
    if isinstance(value, dict):
        return value, ""
    return {}, f"{file} is damaged: it holds {shown(value, 40)} in place of a recipe."


def read_stage(folder: Path, planned: Any = None) -> StageFacts:
    """Read one stage's folder; ``planned`` is its part of the recipe."""
    record = stage_record.read(folder)
    kind = str(planned.get("kind", "")) if isinstance(planned, dict) else ""
    held = (folder.parent / f".{folder.name}.lock").is_file() and stage_record.is_held(folder)
    if record is None:
        damaged = not held and stage_record.has_record(folder)
        state = "working" if held else "damaged" if damaged else "not begun"
        faults = [f"{folder / stage_record.FILE} cannot be read."] if damaged else []
        return StageFacts(folder.name, kind, state, folder, faults=faults)
    state = record.status if record.status != "running" else "working" if held else "stopped"
    files = stage_record.artifact(folder, record)
    stage = StageFacts(folder.name, record.kind or kind, state, files, record, bool(record.artifact))
    if stage.reused and not files.is_dir():
        stage.state = "lost"
        stage.faults.append(f"another run made this stage, and its folder {files} is gone.")
    return stage
