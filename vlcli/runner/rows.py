"""Runs the rows of a table over seeds; stages that rows share run once."""

import fnmatch
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from vlcli.errors import VlcliError
from vlcli.progress import Progress, Silent
from vlcli.recipe.locate import COUNTED, Resolved, Row
from vlcli.recipe.plan import RunOptions
from vlcli.recipe.table import RowTable, metrics_of
from vlcli.runner import ranks
from vlcli.runner.execute import StageOutcome
from vlcli.runner.parallel import Lane, run_lanes
from vlcli.runner.run import held, prepare, run_prepared, run_recipe
from vlcli.runner.watch import Unwatched, watched
from vlcli.tables.results import DONE, FAILED, REFUSED, UNFINISHED, RowResults, RunResults, TableResults


@dataclass
class RowRun:
    """One row with one seed.

    Attributes:
        resolved: the row as a recipe; None if it cannot be loaded.
        folder: of the run.
        error: why the row did not run, or what failed.
        refused: the checks before the run found the error.
        seconds: spent in this run.
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
        """One of the states of :mod:`vlcli.tables.results`."""
        if self.error is not None:
            return REFUSED if self.refused else FAILED
        blocked = any(one.status in ("blocked", "failed") for one in self.outcomes)
        return UNFINISHED if blocked or not self.outcomes else DONE

    @property
    def recipe(self) -> Resolved:
        """``resolved`` of a row that could be loaded."""
        assert self.resolved is not None
        return self.resolved

    def end(self, outcomes: list[StageOutcome], started: float) -> None:
        """Notes the outcomes of a run that began at ``started`` (``time.monotonic``)."""
        self.outcomes, self.seconds = outcomes, time.monotonic() - started
        self.error = self.error or next((one.error for one in outcomes if one.error is not None), None)


def row_runs(table: RowTable, seeds: int = 1) -> list[RowRun]:
    """Returns every row with every seed, seed by seed; the first is the row's own, the others add ``seed=N``.

    A row that cannot be loaded has the error.
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
    """Checks all rows, then runs those without a fault; outcomes are noted in ``runs``.

    Args:
        begins: called with each run before it begins.

    Raises:
        VlcliError: no row can run; this is the fault of the first.
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
        started, outcomes = time.monotonic(), list[StageOutcome]()
        try:
            if ranks.several():
                outcomes = run_recipe(run.recipe, options, progress)
            else:  # planned anew, since what other rows made meanwhile is there now
                prepared = prepare(run.recipe, replace(options, check=False), progress)
                prepared.planner.options = options
                run.folder = prepared.planner.folder
                outcomes = run_prepared(prepared, progress)
        except VlcliError as error:
            run.error = error
        run.end(outcomes, started)


def _check(runs: Iterable[RowRun], options: RunOptions, progress: Progress) -> None:
    # once for each row: the other seeds of a row have the same faults
    faults: dict[str, Exception | None] = {}
    for run in runs:
        if run.resolved is None or run.error is not None:
            continue
        if run.label not in faults:
            faults[run.label] = None
            progress.debug(f"checking row {run.label}")
            try:
                run.folder = prepare(run.resolved, options, progress).planner.folder
            except VlcliError as error:
                faults[run.label] = error
        run.error = faults[run.label]
        run.refused = run.error is not None


def _side_by_side(
    runs: Sequence[RowRun], options: RunOptions, jobs: int, progress: Progress, begins: Callable[[RowRun], None]
) -> None:
    plain = _Lines(progress)
    with ExitStack() as open_ones:
        lanes: list[_RowLane] = []
        for run in runs:
            prepared = prepare(run.recipe, replace(options, check=False), plain)
            prepared.planner.options = options
            prepared = open_ones.enter_context(held(prepared, plain))
            planner, names = prepared.planner, [step.name for step in prepared.steps]
            run.folder = planner.folder
            planner.elsewhere = lanes[0].planner.elsewhere if lanes else planner.elsewhere
            lane = _RowLane(planner, names, Unwatched(plain), run, begins)
            if prepared.working:
                lane.watch = open_ones.enter_context(watched(planner, prepared.steps, jobs, plain))
            lanes.append(lane)
        run_lanes(lanes, jobs)


@dataclass
class _RowLane(Lane):
    run: RowRun
    tell: Callable[[RowRun], None]
    began: float = 0.0

    def begin(self) -> None:
        self.began = time.monotonic()
        self.tell(self.run)

    def end(self) -> None:
        self.run.end(self.ended, self.began)


class _Lines:
    def __init__(self, inner: Progress) -> None:
        self.info, self.warn, self.debug, self.task = inner.info, inner.warn, inner.debug, inner.task


def results(table: RowTable, runs: Sequence[RowRun]) -> dict[str, TableResults]:
    """Returns a table for each evaluate stage that the recipe's ``table`` names, by label; a single one's is empty."""
    named: dict[str, list[str]] = {}
    patterns: list[str] = []
    for row in table.chosen:
        try:
            named[row], of_row = metrics_of(table.member(row).document.value)
        except VlcliError:
            named[row] = []
            continue
        patterns = patterns or of_row
    labels = list(dict.fromkeys(label for found in named.values() for label in found))
    axes = {axis: list(values) for axis, values in table.written.axes.items()}
    whole, about = table.chosen == list(table.written.rows), str(table.document.value.get("about") or "")
    skipped = table.written.skipped.items() if whole else ()
    tables: dict[str, TableResults] = {}
    for label in labels:
        name = label if len(labels) > 1 else ""
        title = f"{table.title}: {name}" if name else table.title
        having = [row for row in table.chosen if label in (named[row] or labels)]
        rows = [_row(table.written.rows[row], label, prefixed=len(named[row]) > 1) for row in having]
        for part in rows:
            part.runs = [_measured(run, label) for run in runs if run.label == part.label]
            part.cell = table.written.rows[part.label].parts if axes else ()
        for cell, why in skipped:
            refused = RunResults(None, REFUSED, error=why or "left out by `skip`")
            rows.append(RowResults(cell, [refused], cell=tuple(cell.split("/"))))
        others = (_row(other, label, prefixed=len(labels) > 1) for other in table.written.others.values() if whole)
        rows += [replace(other, other=True) for other in others if other.published or other.apart]
        known = [*having, *(value for values in axes.values() for value in values)]
        reference = next((one for one in table.written.references if one in known), None)
        tables[name] = TableResults(title, patterns, rows, reference, axes=axes, about=about)
    return _patterns_that_apply(tables)


def _patterns_that_apply(tables: dict[str, TableResults]) -> dict[str, TableResults]:
    # patterns that match no table's metrics stay, and are then refused
    measured = {
        label: {name for row in one.rows for run in row.done for name in run.metrics} for label, one in tables.items()
    }
    every = set().union(*measured.values())
    for label, names in measured.items():
        if names:
            patterns = tables[label].metrics
            kept = [one for one in patterns if fnmatch.filter(names, one) or not fnmatch.filter(every, one)]
            tables[label].metrics = kept
    return tables


def _row(written: Row, label: str, prefixed: bool) -> RowResults:
    start = f"{label}/"
    row = RowResults(written.label)
    for metric, number in written.published.items():
        if number.split != COUNTED and (metric.startswith(start) or not prefixed):
            (row.published if number.is_compared else row.apart)[metric.removeprefix(start)] = number
    return row


def _measured(run: RowRun, label: str) -> RunResults:
    faults = getattr(run.error, "problems", [])
    error = " ".join(str(faults[0] if faults else run.error or "").split())
    layout = run.resolved.recipe.table if run.resolved is not None else None
    stage = (layout.rows if layout is not None else {}).get(label, label)
    outcome = next((one for one in run.outcomes if one.name == stage), None)
    if outcome is not None and outcome.status == "done":
        return RunResults(run.seed, DONE, dict(outcome.metrics), outcome.folder)
    why = error or (outcome.why if outcome is not None else "not run")
    return RunResults(run.seed, run.state if run.state != DONE else UNFINISHED, error=why)
