"""Keeps the state of all stages of a run, for the terminal and in ``progress.json``."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol, runtime_checkable

from vlcli.errors import VlcliError
from vlcli.progress import Progress, ProgressTask
from vlcli.recipe import run_state, stage_record
from vlcli.recipe.plan import PlannedStage, Planner
from vlcli.recipe.run_state import RunState, StageState, Work
from vlcli.recipe.time_left import expect
from vlcli.runner.execute import StageOutcome
from vlcli.stopping import Stopped

_EVERY = 1.0
_STATUS = {"skip": "unchanged", "reuse": "reused", "passed": "passed over"}
_STATUS |= {"blocked": "blocked", "outside": "not chosen"}


@runtime_checkable
class ShowsRuns(Protocol):
    """A :class:`~vlcli.progress.Progress` that can show all stages of a run at once."""

    def run_shown(self, state: RunState) -> AbstractContextManager[None]:
        """Shows ``state``, which changes meanwhile, until the context ends; called by :func:`watched`."""


@contextmanager
def watched(planner: Planner, steps: Sequence[PlannedStage], jobs: int, progress: Progress) -> Iterator[Watch]:
    """Keeps the state of a run, whose folder is held; a ``progress`` of :class:`ShowsRuns` shows it."""
    watch = Watch(planner, steps, jobs, progress)
    watch.changed()
    with ExitStack() as open_ones:
        try:
            if isinstance(progress, ShowsRuns):
                open_ones.enter_context(progress.run_shown(watch.state))
            yield watch
        except BaseException as end:
            watch.broken(end)
            raise
        watch.finished()


class Watch:
    """The state of one run, of which ``steps`` are planned; its methods may be called from several threads."""

    def __init__(self, planner: Planner, steps: Sequence[PlannedStage], jobs: int, progress: Progress) -> None:
        self.planner, self.progress, self.lock = planner, progress, threading.RLock()
        self.measured = [record for found in planner.elsewhere.values() for _, record in found]
        chosen = {step.name: planner.resolved.stages[step.name] for step in steps}
        self.configs = {name: stage.model_dump(by_alias=True, mode="json") for name, stage in chosen.items()}
        stages = []
        for step in steps:
            after = [name for name in planner.graph[step.name].stages if name in self.configs]
            metrics = dict(step.record.metrics) if step.record is not None else {}
            stages.append(StageState(step.name, step.kind, _status(step), step.why, after, metrics=metrics))
        self.state = RunState(planner.resolved.reference, str(planner.folder), stages, jobs, os.getpid())
        self.state.host, self.state.began = platform.node(), time.time()
        self.codes: list[int] = []
        self._written = 0.0

    def of(self, name: str) -> Progress:
        """Returns the progress that the stage ``name`` reports to."""
        return _StageProgress(self, self.state.stage(name))

    def begins(self, step: PlannedStage) -> None:
        """Notes that a stage starts, or that it has nothing to do."""
        with self.lock:
            stage = self.state.stage(step.name)
            stage.why, stage.status = step.why, _status(step, "running")
            stage.began = time.time() if step.works else 0.0
            self.changed()

    def ends(self, outcome: StageOutcome) -> StageOutcome:
        with self.lock:
            stage = self.state.stage(outcome.name)
            stage.work, stage.seconds, stage.metrics = [], outcome.seconds, dict(outcome.metrics)
            if outcome.status != "skipped":
                stage.status = _STATUS.get(outcome.action, "done") if outcome.status == "done" else outcome.status
            if outcome.error is not None:
                self.codes.append(outcome.error.exit_code if isinstance(outcome.error, VlcliError) else 1)
            elif outcome.status == "done" and (record := stage_record.read(outcome.folder)) is not None:
                self.measured.insert(0, record)
            self.changed()
        return outcome

    def changed(self) -> None:
        """Estimates the time left again, and writes the state."""
        with self.lock:
            for stage in self.state.stages:
                if stage.status in ("waiting", "running"):
                    records, config = [*self.measured, *self._under_way(stage.kind)], self.configs[stage.name]
                    stage.expected = expect(records, self.state.recipe, stage.name, stage.kind, config)
            self._write()

    def moved(self) -> None:
        """Called at each step of a stage; writes the state about once a second."""
        if time.monotonic() - self._written >= _EVERY:
            self.changed()

    def _under_way(self, kind: str) -> list[stage_record.StageRecord]:
        # what stages of this kind that run now will have taken, as far as that can be told
        now, records = time.time(), []
        for stage in self.state.stages:
            left = stage.work[0].left(now) if stage.work and (stage.kind, stage.status) == (kind, "running") else None
            if left is not None:
                record = stage_record.StageRecord(stage.name, kind, "running", "", config=self.configs[stage.name])
                record.recipe, record.seconds = self.state.recipe, now - stage.began + left
                records.append(record)
        return records

    def _write(self) -> None:
        self._written = time.monotonic()
        run_state.write(self.planner.folder, self.state)

    def broken(self, end: BaseException) -> None:
        """Notes that a signal or an error ends the run."""
        with self.lock:
            stopped = isinstance(end, (Stopped, KeyboardInterrupt))
            self.state.status = "stopped" if stopped else "failed"
            self.state.code = end.code if isinstance(end, Stopped) else 130 if stopped else 1
            for stage in self.state.stages:
                if stage.status == "running":
                    stage.status, stage.work = self.state.status, []
            self._write()

    def finished(self) -> None:
        """Removes the file when every stage has ended, unless a stage failed or was blocked."""
        with self.lock:
            blocked = any(stage.status == "blocked" for stage in self.state.stages)
            self.state.code = self.codes[0] if self.codes else 5 * blocked
            self.state.status = "failed" if self.state.code else "done"
            if self.state.code:
                self._write()
            else:
                run_state.remove(self.planner.folder)


class Unwatched:
    """Does nothing, in place of a :class:`Watch`: in worker processes, and in runs all of whose stages are finished."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def of(self, name: str) -> Progress:
        return self.progress

    def begins(self, step: PlannedStage) -> None:
        pass

    def ends(self, outcome: StageOutcome) -> StageOutcome:
        return outcome


def _status(step: PlannedStage, working: str = "waiting") -> str:
    return working if step.works else _STATUS[step.action]


class _StageProgress:
    def __init__(self, watch: Watch, stage: StageState) -> None:
        self.watch, self.stage, self.inner = watch, stage, watch.progress

    def info(self, message: str) -> None:
        with self.watch.lock:
            self.inner.info(message)

    def warn(self, message: str) -> None:
        with self.watch.lock:
            self.inner.warn(message)

    def debug(self, message: str) -> None:
        with self.watch.lock:
            self.inner.debug(message)

    @contextmanager
    def task(self, label: str, total: int | None, unit: str = "it", done: int = 0) -> Iterator[ProgressTask]:
        short = label.removeprefix(f"{self.stage.name}: ")
        work = Work(short, unit, total, done, done, time.time())
        with self.inner.task(label, total, unit, done) as shown:
            with self.watch.lock:
                self.stage.work = [*self.stage.work, work]
            try:
                yield _NotedTask(self.watch, work, shown)
            finally:
                with self.watch.lock:
                    self.stage.work = [other for other in self.stage.work if other is not work]


class _NotedTask:
    def __init__(self, watch: Watch, work: Work, shown: ProgressTask) -> None:
        self.watch, self.work, self.shown = watch, work, shown

    def advance(self, count: int = 1, **facts: float | str) -> None:
        with self.watch.lock:
            self.work.done += count
            self.work.facts = dict(facts) or self.work.facts
            self.shown.advance(count, **facts)
        self.watch.moved()
