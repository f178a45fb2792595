"""Runs one stage: prepares its folder and context, calls its kind, writes its record."""

import errno
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from itertools import takewhile
from pathlib import Path
from typing import Any

from vlcli.builders.context import StageContext
from vlcli.errors import VlcliError
from vlcli.progress import Progress
from vlcli.recipe import digests, keys, leftovers, pictures, stage_record, wiring
from vlcli.recipe.plan import PlannedStage, Planner, RunOptions
from vlcli.recipe.schema import STAGES
from vlcli.recipe.stage_record import StageRecord
from vlcli.runner import ranks


@dataclass
class StageOutcome:
    """How one stage ended.

    Attributes:
        action: see ``vlcli.recipe.plan``.
        status: ``done``, ``failed``, ``blocked`` or ``skipped`` (passed over).
        folder: of the artifact.
        seconds: spent in this run.
        notes: lines for the user.
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


States = dict[str, PlannedStage]
"""What was decided of each stage so far, by name."""
Execute = Callable[[Planner, PlannedStage, States, Progress], StageRecord]
"""Runs one stage and returns its finished record."""


def settle(planner: Planner, states: States, name: str, progress: Progress, run: Execute) -> StageOutcome:
    """Carries out the planned action of one stage, and updates its entry of ``states``."""
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
            error = fault
            if isinstance(fault, OSError) and fault.errno == errno.ENOSPC:
                hint = "free some space and run the same command again: it goes on from what is finished"
                error = VlcliError("The disk is full.", where=str(step.folder), got=str(fault), hint=hint)
            step.action, step.why = "blocked", f"{name} failed"
    ended = {"blocked": "blocked", "outside": "blocked", "passed": "skipped"}.get(step.action, "done")
    folder, seconds = step.artifact or step.folder, time.monotonic() - started if step.works or error else 0.0
    status, record = "failed" if error else ended, step.record
    metrics, notes = (dict(record.metrics), list(record.notes)) if record is not None else ({}, [])
    return StageOutcome(name, step.kind, step.action, status, step.why, folder, seconds, metrics, notes, error)


def execute(planner: Planner, step: PlannedStage, states: States, progress: Progress) -> StageRecord:
    """Runs one stage in this process; its ``stage.json`` is written at the start and at the end."""
    if planner.options.key not in ("", step.key):  # a worker process reads the recipe again
        what, hint = "The recipe or what it reads has changed since the run began.", "run the same command again"
        raise VlcliError(what, where=planner.resolved.reference, hint=hint)
    context = context_of(planner, step.name, states, progress)
    named = (wiring.find_place(value, context.root) for value in planner.graph[step.name].paths)
    paths = [path for path in named if path is not None]
    sources = {*context.inputs.values(), *filter(stage_record.has_record, paths)}
    with stage_record.locked(step.folder), stage_record.read_locked(sorted(sources)):
        record = _open(planner, step, states, context, paths)  # reads every data file: before the folder changes
        context.resume, record.replaces = _make_room(step, planner.options, progress)
        stage_record.write(step.folder, record)
        started = time.monotonic()

        def keep_pictures(row: dict[str, Any]) -> None:
            record.data = [*(other for other in record.data if "pictures" not in other), row]
            stage_record.write(step.folder, record)

        try:
            if ranks.several() and STAGES[step.kind].joint:
                ranks.announce(context)
            with pictures.noted(step.folder, keep_pictures):
                result = ranks.run_stage(context)
        except Exception as fault:
            record.status, record.error = "failed", str(fault) or type(fault).__name__
            record.finished, record.seconds = _now(), time.monotonic() - started
            with suppress(OSError, VlcliError):  # on a full disk the failure itself must still be told
                stage_record.write(step.folder, record)
            raise
        record.status, record.finished, record.seconds = "done", _now(), time.monotonic() - started
        record.metrics, record.files = result.metrics, result.files
        record.notes, record.facts = result.notes, dict(result.facts)
        pictures.forget()
        if changed := digests.changed(record.data, step.folder):
            record.notes.append(f"while this stage ran, data changed: {changed}")
            progress.warn(f"{step.name}: {record.notes[-1]}; the next run makes it again")
        record.sizes = stage_record.sizes(step.folder, record.files)
        stage_record.write(step.folder, record)
        leftovers.sweep_replaced(step.folder, record)
        return record


def _make_room(step: PlannedStage, options: RunOptions, progress: Progress) -> tuple[bool, str]:
    # what a forced run replaces is removed once the new artifact stands; anything else stays as STAGE.old-N
    leftovers.sweep_stage(step.folder)
    old = stage_record.read(step.folder)
    if old is not None and old.key == step.key and (step.action == "resume" or step.goes_on):
        return True, old.replaces
    moved = stage_record.aside(step.folder)
    if moved is not None and (old is None or step.lost):
        progress.info(f"{step.name}: what was in the folder is kept as {moved.name}")
    step.folder.mkdir(parents=True, exist_ok=True)
    forced = options.force and old is not None and old.key == step.key
    return False, moved.name if moved is not None and forced else ""


def _open(
    planner: Planner, step: PlannedStage, states: States, context: StageContext, paths: list[Path]
) -> StageRecord:
    recipe, stage = planner.resolved.recipe, context.config
    inputs = {}
    for name in (*planner.graph[step.name].named, *step.implied):
        other = states[name]
        if other.record is not None and other.artifact is not None:
            inputs[name] = {"fingerprint": other.record.fingerprint, "path": str(other.artifact.absolute())}
    config = stage.model_dump(by_alias=True, mode="json")
    record = StageRecord(step.name, step.kind, "running", step.key, config, inputs)
    files = [file for file in keys.data_files(recipe, step.name, context.root) + paths if file.exists()]
    made = [row["path"] for row in inputs.values()]
    outside = [file for file in files if not any(file.absolute().is_relative_to(folder) for folder in made)]
    known = [row for runs in planner.elsewhere.values() for _, other in runs for row in other.data]
    record.data = digests.data_digests(outside, known)
    record.root, record.recipe = str(context.root.absolute()), planner.resolved.reference
    if hasattr(stage, "features"):
        record.features = [str(path.absolute()) for path in context.feature_files(stage.features)]
    record.seed = context.seed if keys.is_seeded(context.config) else None
    record.versions = {"python": sys.version.split()[0]}
    for package in ("torch", "torchvision", "timm", "numpy"):
        with suppress(metadata.PackageNotFoundError):
            record.versions[package] = metadata.version(package)
    record.versions |= keys.packages(recipe, step.name)
    record.started = _now()
    return record


def context_of(planner: Planner, name: str, states: States, progress: Progress) -> StageContext:
    """Returns the context of a stage: of the others, only the finished ones that it waits for."""
    recipe = planner.resolved.recipe
    stage = recipe.stages[name]
    earlier = list(takewhile(lambda other: other != name, planner.graph))
    waited = {*planner.graph[name].named, *states[name].implied} if name in states else set(planner.graph[name].stages)
    # Which other stages happen to be finished must not matter when several run at a time.
    below = wiring.ancestors(planner.graph, list(waited))
    done = ((n, states[n]) for n in earlier if n in states and n in below)
    inputs = {n: other.artifact for n, other in done if other.record is not None and other.artifact is not None}
    kinds = {n: recipe.stages[n].kind for n in planner.graph if n in waited or n not in earlier}
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
    assert step.artifact is not None
    assert step.record is not None
    artifact = os.path.relpath(step.artifact, step.folder)
    with stage_record.locked(step.folder):
        if stage_record.read(step.folder) is not None:
            stage_record.aside(step.folder)
        stage_record.write(step.folder, replace(step.record, stage=step.name, artifact=artifact))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
