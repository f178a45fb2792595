"""Runs one stage: prepares its folder and context, calls its kind, writes its record, says how it ended."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from vlcli.builders.context import StageContext, StageResult
from vlcli.errors import VlcliError
from vlcli.progress import Progress
from vlcli.recipe import artifacts, digests, keys, leftovers, pictures, stage_record, wiring
from vlcli.recipe.plan import PlannedStage, Planner, RunOptions
from vlcli.recipe.schema import STAGES
from vlcli.recipe.stage_record import StageRecord
from vlcli.runner import ranks


@dataclass
class StageOutcome:
    """How one stage ended.

    Attributes:
        name: the stage.
        kind: its kind.
        action: what was done: see ``vlcli.recipe.plan``.
        status: ``done``, ``failed``, ``blocked`` or ``skipped`` (passed over).
        why: in a few words.
        folder: its artifact.
        seconds: time spent now.
        metrics: its numbers.
        notes: lines for the user.
        error: what went wrong.
    """

    name: str
    kind: str
    action: str
    status: str
    why: str
    folder: Path
    seconds: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    error: Exception | None = None


Execute = Callable[[Planner, PlannedStage, dict[str, PlannedStage], Progress], StageRecord]
"""Runs one stage and returns its finished record."""


def settle(
    planner: Planner, states: dict[str, PlannedStage], name: str, progress: Progress, run: Execute
) -> StageOutcome:
    """Carry out what was decided for one stage; ``states`` then says what came of it."""
    step = states[name]
    started = time.monotonic()
    error: Exception | None = None
    if step.action == "reuse":
        _point_at(step)
    elif step.works:
        if planner.options.check:  # a worker process: its parent has said so
            progress.info(f"{name}: {step.action} ({step.why})")
        try:
            step.record = run(planner, step, states, progress)
            step.artifact = step.folder
        except Exception as fault:
            if ranks.several() and STAGES[step.kind].joint:
                raise  # the others wait inside this stage: only the end of this process lets the launcher end them
            error = _disk_full(fault, step.folder)
            step.action, step.why = "blocked", f"{name} failed"
    return _outcome(step, error, time.monotonic() - started)


def _outcome(step: PlannedStage, error: Exception | None, seconds: float) -> StageOutcome:
    status = {"blocked": "blocked", "outside": "blocked", "passed": "skipped"}.get(step.action, "done")
    folder, record = step.artifact or step.folder, step.record
    outcome = StageOutcome(
        step.name, step.kind, step.action, "failed" if error else status, step.why, folder, error=error
    )
    outcome.seconds = seconds if step.works or error else 0.0
    if record is not None:
        outcome.metrics, outcome.notes = dict(record.metrics), list(record.notes)
    return outcome


def _disk_full(fault: Exception, folder: Path) -> Exception:
    if isinstance(fault, OSError) and fault.errno == errno.ENOSPC:
        return VlcliError(
            "The disk is full.",
            where=str(folder),
            got=str(fault),
            hint="free some space and run the same command again: it goes on from what is finished",
        )
    return fault


def execute(planner: Planner, step: PlannedStage, states: dict[str, PlannedStage], progress: Progress) -> StageRecord:
    """Run one stage in this process, its ``stage.json`` kept throughout."""
    context = context_of(planner, step.name, states, progress)
    found = [wiring.find_place(value, context.root) for value in planner.graph[step.name].paths]
    places = [place for place in found if place is not None]
    sources = {*context.inputs.values(), *filter(stage_record.has_record, places)}
    with (
        stage_record.locked(step.folder),
        stage_record.read_locked(sorted(sources)),
        _made_room(step, planner.options, progress) as (resume, replaces),
    ):
        context.resume = resume
        record = _begin(planner, step, states, context, places, replaces)
        started = time.monotonic()
        try:
            if ranks.several() and STAGES[step.kind].joint:
                ranks.announce(context)
            from vlcli.images.files import pixel_range  # not before a stage runs: pillow takes a tenth of a second

            module = importlib.import_module(f"vlcli.stages.{step.kind}")
            noted = pictures.noted(step.folder, lambda row: _keep_pictures(step.folder, record, row))
            with noted, pixel_range(planner.resolved.recipe.images.range):
                result: StageResult = module.run(context)
        except Exception as fault:
            record.status, record.error = "failed", str(fault) or type(fault).__name__
            record.finished, record.seconds = _now(), time.monotonic() - started
            _write_quietly(step.folder, record)
            raise
        _finish(record, result, time.monotonic() - started)
        pictures.forget()
        if changed := digests.changed(record.data, step.folder):
            record.notes.append(f"while this stage ran, data changed: {changed}")
            progress.warn(f"{step.name}: {record.notes[-1]}; the next run makes it again")
        record.sizes = artifacts.sizes(step.folder, record.files)
        stage_record.write(step.folder, record)
        leftovers.sweep_replaced(step.folder, record)
        return record


@contextmanager
def _made_room(step: PlannedStage, options: RunOptions, progress: Progress) -> Iterator[tuple[bool, str]]:
    """Move what another key or ``--force`` leaves behind aside; yields whether to resume, and what will be replaced.

    What a forced run replaces is removed once the new artifact stands; anything else stays as ``<stage>.old-N``.
    """
    leftovers.sweep_stage(step.folder)
    old = stage_record.read(step.folder)
    if old is not None and old.key == step.key and (step.action == "resume" or step.goes_on):
        yield True, old.replaces
        return
    moved = stage_record.aside(step.folder)
    if moved is not None and (old is None or step.lost):
        progress.info(f"{step.name}: what was in the folder is kept as {moved.name}")
    step.folder.mkdir(parents=True, exist_ok=True)
    forced = moved is not None and options.force and old is not None and old.key == step.key
    yield False, moved.name if forced and moved is not None else ""


def _begin(
    planner: Planner,
    step: PlannedStage,
    states: dict[str, PlannedStage],
    context: StageContext,
    places: list[Path],
    replaces: str = "",
) -> StageRecord:
    recipe = planner.resolved.recipe
    stage = recipe.stages[step.name]
    inputs = {}
    for name in (*planner.graph[step.name].named, *step.implied):
        other = states[name]
        if other.record is not None and other.artifact is not None:
            inputs[name] = {"fingerprint": other.record.fingerprint, "path": str(other.artifact.absolute())}
    made = [Path(row["path"]) for row in inputs.values()]
    files = keys.data_files(recipe, step.name, context.root) + places
    outside = [file for file in files if not any(file.absolute().is_relative_to(folder) for folder in made)]
    record = StageRecord(
        step.name, step.kind, "running", step.key, stage.model_dump(by_alias=True, mode="json"), inputs
    )
    known = [row for made in planner.elsewhere.values() for _, other in made for row in other.data]
    record.data = digests.data_digests([file for file in outside if file.exists()], known)
    record.replaces = replaces
    record.root, record.recipe = str(context.root.absolute()), planner.resolved.reference
    if hasattr(stage, "features"):
        record.features = [str(path.absolute()) for path in context.feature_files(stage.features)]
    record.seed = context.seed if keys.is_seeded(context.config) else None
    record.versions, record.started = _versions(planner, step.name), _now()
    stage_record.write(step.folder, record)
    return record


def _keep_pictures(folder: Path, record: StageRecord, row: dict[str, Any]) -> None:
    record.data = [*(other for other in record.data if "pictures" not in other), row]
    stage_record.write(folder, record)


def _finish(record: StageRecord, result: StageResult, seconds: float) -> None:
    record.status, record.finished, record.seconds = "done", _now(), seconds
    record.metrics, record.files = result.metrics, result.files
    record.notes, record.facts = result.notes, dict(result.facts)


def _write_quietly(folder: Path, record: StageRecord) -> None:
    """On a full disk the failure itself must still be told."""
    try:
        stage_record.write(folder, record)
    except (OSError, VlcliError):
        return


def context_of(planner: Planner, name: str, states: dict[str, PlannedStage], progress: Progress) -> StageContext:
    """What a stage is handed."""
    recipe = planner.resolved.recipe
    stage = recipe.stages[name]
    earlier = list(planner.graph)[: list(planner.graph).index(name)]
    ready = {n: states[n].artifact for n in earlier if n in states and states[n].ready}
    waited = {*planner.graph[name].named, *states[name].implied} if name in states else set(planner.graph[name].stages)
    # Only what it waits for: which other stages happen to be finished must not matter when several run at a time.
    below = wiring.ancestors(planner.graph, list(waited))
    inputs = {n: path for n, path in ready.items() if n in below and path is not None}
    kinds = {n: recipe.stages[n].kind for n in planner.graph if n in waited or n == name or n not in earlier}
    return StageContext(
        recipe=recipe,
        name=name,
        config=stage,
        folder=planner.folder / name,
        inputs=inputs,
        root=wiring.root_folder(recipe, stage, inputs),
        seed=keys.seed_of(recipe, stage),
        device=planner.options.device or stage.device or "auto",
        progress=progress,
        resume=planner.options.resume,
        kinds=kinds,
    )


def _point_at(step: PlannedStage) -> None:
    """Leave a ``stage.json`` in this run that leads to the artifact another run made."""
    assert step.artifact is not None
    assert step.record is not None
    record = StageRecord(**{**vars(step.record), "stage": step.name})
    with stage_record.locked(step.folder):
        if stage_record.read(step.folder) is not None:
            stage_record.aside(step.folder)
        record.artifact = os.path.relpath(step.artifact, step.folder)
        stage_record.write(step.folder, record)


def _versions(planner: Planner, name: str) -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in ("torch", "torchvision", "timm", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found | keys.packages(planner.resolved.recipe, name)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
