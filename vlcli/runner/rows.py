"""Runs the rows of a table over seeds: shared stages are made once, a row that fails leaves the others' results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from vlcli.errors import VlcliError
from vlcli.progress import Progress, Silent
from vlcli.recipe.plan import PlannedStage, RunOptions
from vlcli.recipe.resolved import Resolved
from vlcli.recipe.stage_record import StageRecord
from vlcli.recipe.table import RowTable, metrics_of
from vlcli.runner import ranks
from vlcli.runner.execute import StageOutcome, settle
from vlcli.runner.parallel import Children, first_the_longest, startable
from vlcli.runner.run import Prepared, held, prepare, run_prepared, run_recipe
from vlcli.runner.watch import Unwatched, Watch, watched
from vlcli.tables.results import (
    DONE,
    FAILED,
    REFUSED,
    UNFINISHED,
    Published,
    RowResults,
    RunResults,
    TableResults,
)


@dataclass
class RowRun:
    """One row with one seed.

    Attributes:
        label: of the row.
        seed: of the run.
        resolved: the row as a recipe; None where it cannot be loaded.
        folder: the run's folder.
        outcomes: what became of its stages.
        error: why it did not run, or what failed.
        refused: whether the checks before the run found the fault.
        seconds: time spent now.
    """

    label: str
    seed: int
    resolved: Resolved | None = None
    folder: Path | None = None
    outcomes: list[StageOutcome] = field(default_factory=list)
    error: Exception | None = None
    refused: bool = False
    seconds: float = 0.0

    @property
    def state(self) -> str:
        """In a word, as in the results of a table."""
        if self.error is not None:
            return REFUSED if self.refused else FAILED
        blocked = any(one.status in ("blocked", "failed") for one in self.outcomes)
        return UNFINISHED if blocked or not self.outcomes else DONE


def row_runs(table: RowTable, seeds: int = 1) -> list[RowRun]:
    """Every row with every seed, seed by seed; the first seed is the row's own.

    A row that cannot be loaded has the error. Other rows than the first seed's get the word ``seed=N``.
    """
    runs = []
    for number in range(seeds):
        for label in table.chosen:
            try:
                resolved = table.member(label)
                seed = resolved.recipe.seed + number
                resolved = table.member(label, [f"seed={seed}"]) if number else resolved
                runs.append(RowRun(label, seed, resolved))
            except VlcliError as error:
                runs.append(RowRun(label, number, error=error, refused=True))
    return runs


def run_rows(
    runs: Sequence[RowRun],
    options: RunOptions,
    jobs: int = 1,
    progress: Progress | None = None,
    begins: Callable[[RowRun], None] = lambda _: None,
) -> None:
    """Run them all; what became of each stands in the runs themselves.

    Every row is checked before the first stage runs. A row in which the checks find a fault is left out; where they
    find one in every row, nothing runs.

    Args:
        runs: rows with seeds.
        options: how to run each.
        jobs: stages at a time, of all rows together.
        progress: where to report.
        begins: called with each run before it begins.

    Raises:
        VlcliError: no row can run: the fault of the first.
    """
    progress = progress or Silent()
    if not ranks.several():
        _check(runs, options, progress)
    sound = [run for run in runs if run.error is None]
    if not sound and runs:
        raise runs[0].error or VlcliError("No row can run.")
    if jobs > 1 and not ranks.several():
        _side_by_side(sound, options, jobs, progress, begins)
        return
    for run in sound:
        begins(run)
        started = time.monotonic()
        try:
            if ranks.several():
                run.outcomes = run_recipe(_resolved(run), options, progress)
            else:
                _one(run, options, progress)
        except VlcliError as error:
            run.error = error
        _ended(run, started)


def _resolved(run: RowRun) -> Resolved:
    assert run.resolved is not None
    return run.resolved


def _one(run: RowRun, options: RunOptions, progress: Progress) -> None:
    """A row by itself: planned anew, since what other rows made meanwhile is there now."""
    made = prepare(_resolved(run), replace(options, check=False), progress)
    made.planner.options = options
    run.folder = made.planner.folder
    run.outcomes = run_prepared(made, progress)


def _ended(run: RowRun, started: float) -> None:
    run.seconds = time.monotonic() - started
    failed = next((one.error for one in run.outcomes if one.error is not None), None)
    run.error = run.error or failed


def _check(runs: Iterable[RowRun], options: RunOptions, progress: Progress) -> None:
    """The checks before a run, once for each row; the other seeds of a row have the same faults."""
    faults: dict[str, Exception | None] = {}
    for run in runs:
        if run.resolved is None or run.error is not None:
            continue
        if run.label not in faults:
            progress.debug(f"checking row {run.label}")
            try:
                run.folder = prepare(run.resolved, options, progress).planner.folder
                faults[run.label] = None
            except VlcliError as error:
                faults[run.label] = error
        run.error = faults[run.label]
        run.refused = run.error is not None


class _Lane:
    """One row's stages among those of others that run at the same time."""

    def __init__(self, run: RowRun, prepared: Prepared, watch: Watch | Unwatched) -> None:
        self.run, self.planner, self.watch = run, prepared.planner, watch
        self.names = [step.name for step in prepared.steps]
        self.waiting = first_the_longest({name: node.stages for name, node in self.planner.graph.items()})
        self.open = set[str]()
        self.states: dict[str, PlannedStage] = {}
        self.outcomes: dict[str, StageOutcome] = {}
        self.began = time.monotonic()

    def ready(self, making: set[str]) -> str | None:
        """The next stage that can be settled; stages that another row makes right now are waited for."""
        for name in startable(self.planner, self.waiting, self.open):
            step = self.planner.decide(name, self.states)
            if step.works and step.key in making:
                continue
            self.states[name] = step
            return name
        return None


def _side_by_side(
    runs: Sequence[RowRun], options: RunOptions, jobs: int, progress: Progress, begins: Callable[[RowRun], None]
) -> None:
    """Stages of several rows at a time, each in a process; what two rows share is made once."""
    children, plain = Children(), _Lines(progress)
    shared: dict[str, list[tuple[Path, StageRecord]]] | None = None
    with ExitStack() as open_ones, ThreadPoolExecutor(jobs) as pool:
        lanes = []
        for run in runs:
            prepared = prepare(_resolved(run), replace(options, check=False), plain)
            prepared.planner.options = options
            prepared = open_ones.enter_context(held(prepared, plain))
            run.folder = prepared.planner.folder
            shared = prepared.planner.elsewhere if shared is None else shared
            prepared.planner.elsewhere = shared
            lanes.append(_Lane(run, prepared, Unwatched(plain)))
            if prepared.working:
                watch = watched(prepared.planner, prepared.steps, jobs, plain)
                lanes[-1].watch = open_ones.enter_context(watch)
        try:
            _schedule(lanes, pool, jobs, children, begins)
        except BaseException:
            children.stop()
            raise


def _schedule(
    lanes: list[_Lane], pool: ThreadPoolExecutor, jobs: int, children: Children, begins: Callable[[RowRun], None]
) -> None:
    running: dict[Future[StageOutcome], tuple[_Lane, str]] = {}
    making: set[str] = set()
    begun: set[int] = set()
    while running or any(lane.waiting for lane in lanes):
        for lane in lanes:
            while len(running) < jobs and (name := lane.ready(making)) is not None:
                lane.waiting.remove(name)
                if name not in lane.names:
                    continue
                if id(lane) not in begun:
                    begun.add(id(lane))
                    lane.began = time.monotonic()
                    begins(lane.run)
                step = lane.states[name]
                lane.watch.begins(step)
                making |= {step.key} if step.works and step.key else set()
                lane.open.add(name)
                work = pool.submit(settle, lane.planner, lane.states, name, lane.watch.of(f"{name}"), children.execute)
                running[work] = lane, name
        if not running:
            break
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            lane, name = running.pop(future)
            _settled(lane, name, future.result(), making)


def _settled(lane: _Lane, name: str, outcome: StageOutcome, making: set[str]) -> None:
    """A stage has ended: rows that wait for the same can reuse it."""
    step = lane.states[name]
    lane.open.discard(name)
    lane.outcomes[name] = lane.watch.ends(outcome)
    making.discard(step.key)
    if outcome.action in ("run", "resume") and step.record is not None and step.artifact is not None:
        lane.planner.elsewhere.setdefault(step.record.key, []).insert(0, (step.artifact, step.record))
    if not lane.waiting and not lane.open:
        lane.run.outcomes = [lane.outcomes[one] for one in lane.planner.graph if one in lane.outcomes]
        _ended(lane.run, lane.began)


class _Lines:
    """A progress that shows no view of one run, since several run at the same time."""

    def __init__(self, inner: Progress) -> None:
        self.info, self.warn, self.debug, self.task = inner.info, inner.warn, inner.debug, inner.task


def results(table: RowTable, runs: Sequence[RowRun]) -> dict[str, TableResults]:
    """What was measured, as tables: one for each evaluate stage that the recipe's ``table`` names, by its label.

    Where the recipe names one, its label is empty.
    """
    labels, patterns = _labels(table)
    made: dict[str, TableResults] = {}
    for label in labels:
        name = label if len(labels) > 1 else ""
        title = f"{table.title}: {name}" if name else table.title
        axes = {axis: list(values) for axis, values in table.written.axes.items()}
        found = TableResults(title, patterns, axes=axes, about=str(table.document.value.get("about") or ""))
        having = [row for row in table.chosen if label in (_labels_of(table, row) or labels)]
        found.rows = [_row(table, row, label, runs) for row in having]
        found.rows += _left_out(table)
        known = [*having, *(value for values in axes.values() for value in values)]
        found.reference = table.written.reference if table.written.reference in known else None
        made[name] = found
    return _patterns_that_apply(made)


def _patterns_that_apply(made: dict[str, TableResults]) -> dict[str, TableResults]:
    """Each table keeps the patterns that match its numbers, and those that match no table's, which are then refused."""
    measured = {
        label: {name for row in one.rows for run in row.done for name in run.metrics} for label, one in made.items()
    }
    every = {name for names in measured.values() for name in names}
    for label, own in measured.items():
        if own:
            kept = [one for one in made[label].metrics if _matches(one, own) or not _matches(one, every)]
            made[label].metrics = kept
    return made


def _matches(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _left_out(table: RowTable) -> list[RowResults]:
    """The cells of a grid that ``skip`` names, where the whole grid is meant."""
    if table.chosen != list(table.written.rows):
        return []
    found = table.written.skipped.items()
    refused = [(cell, RunResults(None, REFUSED, error=why or "left out by `skip`")) for cell, why in found]
    return [RowResults(cell, [run], cell=tuple(cell.split("/"))) for cell, run in refused]


def _labels_of(table: RowTable, row: str) -> list[str]:
    """The evaluate stages whose numbers a row has; none where it cannot be loaded."""
    try:
        return metrics_of(table.member(row).document.value)[0]
    except VlcliError:
        return []


def _labels(table: RowTable) -> tuple[list[str], list[str]]:
    """Labels of evaluate stages in the order in which the rows first have them, and the patterns of metrics."""
    labels: dict[str, None] = {}
    patterns: list[str] = []
    for label in table.chosen:
        try:
            value = table.member(label).document.value
        except VlcliError:
            continue
        found, own = metrics_of(value)
        labels |= dict.fromkeys(found)
        patterns = patterns or own
    return list(labels), patterns


def _row(table: RowTable, row: str, label: str, runs: Sequence[RowRun]) -> RowResults:
    written = table.written.rows[row]
    prefix = f"{label}/" if len(_labels_of(table, row)) > 1 else ""
    published = {
        metric.removeprefix(prefix): Published(*numbers)
        for metric, numbers in written.published.items()
        if metric.startswith(prefix)
    }
    cell = written.parts if table.written.axes else ()
    return RowResults(row, [_measured(run, label) for run in runs if run.label == row], published, cell)


def _measured(run: RowRun, label: str) -> RunResults:
    """One run's numbers of the evaluate stage that ``label`` stands for."""
    faults = getattr(run.error, "problems", [])
    error = " ".join(str(faults[0] if faults else run.error or "").split())
    layout = run.resolved.recipe.table if run.resolved is not None else None
    stage = (layout.rows if layout is not None else {}).get(label, label)
    outcome = next((one for one in run.outcomes if one.name == stage), None)
    if outcome is None or outcome.status != "done":
        why = error or (outcome.why if outcome is not None else "not run")
        return RunResults(run.seed, run.state if run.state != DONE else UNFINISHED, error=why)
    return RunResults(run.seed, DONE, dict(outcome.metrics), outcome.folder)
