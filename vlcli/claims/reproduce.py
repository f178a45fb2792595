"""Runs the rows that registered claims need, those first that decide most per minute, and keeps their results."""

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vlcli.claims import results_file
from vlcli.claims.load import Power, Registered, every
from vlcli.claims.results_file import Cell, Measured, Results, all_cells, cells_of, seeds_of
from vlcli.errors import DataError, Problem, RecipeError, VlcliError, did_you_mean
from vlcli.progress import Progress, Silent
from vlcli.recipe import stage_record
from vlcli.recipe.check import by_place
from vlcli.recipe.plan import RunOptions
from vlcli.recipe.table import RowTable, load_table
from vlcli.runner.rows import RowRun, results, run_rows
from vlcli.tables.results import DONE, FAILED

ALPHA = 0.05


@dataclass(frozen=True)
class Job:
    """A claim that is not decided yet, the cells that decide it, and the probability that they do."""

    id: str
    cells: frozenset[Cell]
    chance: float


def following(jobs: Sequence[Job], done: Collection[Cell], seconds: Callable[[Cell], float]) -> Job | None:
    """Returns the claim to run next; None where all cells of all claims are done.

    A claim is worth the number of claims that can be expected to be decided once its missing cells are done: its own,
    and others whose missing cells are among these; divided by the time which these cells take.

    Args:
        jobs: claims, in the order in which equals are run.
        done: cells that need not be run.
    """
    missing = {job.id: job.cells.difference(done) for job in jobs}
    left = [job for job in jobs if missing[job.id]]

    def rate(job: Job) -> float:
        worth = sum(other.chance for other in left if missing[other.id] <= missing[job.id])
        return worth / max(1e-9, sum(map(seconds, missing[job.id])))

    return max(left, key=rate, default=None)


@cache
def chance(power: Power, seeds: int, alpha: float = ALPHA) -> float:
    """Returns the power of a two-sided paired t test with ``seeds`` pairs at the level ``alpha``."""
    from statsmodels.stats.power import TTestPower

    if seeds < 2:
        return 0.0
    return float(TTestPower().power(power.difference / power.deviation, seeds, alpha))


# The folder of results and page under the folder of all runs
FOLDER = "reproduce"
_USUAL_SECONDS = 60.0  # the expected time of a row with one seed while none of its recipe has run


class Tables:
    """The tables that claims name, each loaded once."""

    def __init__(self) -> None:
        self.table, self._of_row = cache(load_table), cache(self._digest)

    def digest(self, cell: Cell) -> str:
        return self._of_row(cell.recipe, cell.row)

    def _digest(self, recipe: str, row: str) -> str:
        value = {**self.table(recipe).member(row).document.value, "seed": None, "about": None}
        return stage_record.digest(value)[:16]


@dataclass
class Study:
    """Claims with what was measured for them.

    Attributes:
        claims: all claims of the papers in question; Holm's correction counts each.
        chosen: those that are to be run.
        folder: of the file of results.
        seeds: how many seeds each takes; None: as registered.
        page: to be written; the results beside it (``published``) need not be run again.
    """

    claims: list[Registered]
    chosen: list[Registered]
    folder: Path
    seeds: int | None = None
    page: Path | None = None

    def __post_init__(self) -> None:
        self.tables, self.results = Tables(), results_file.read(self.folder / results_file.FILE)
        self.published = Results() if self.page is None else results_file.read(results_file.beside(self.page))

    def look(self, cell: Cell) -> Measured | None:
        """Returns what a cell measured with the recipe as it is today."""
        digest = self.tables.digest(cell)
        return self.results.of(cell, digest) or self.published.of(cell, digest)

    def shown(self) -> Results:
        """Returns what the page's file of results holds next: the claims' cells as they are today, and what it held.

        Cells of rows that have been edited or removed since are left out: no page shows them.
        """
        cells = all_cells(self.claims, self.seeds)
        recipes = {cell.recipe for cell in cells}

        def is_current(key: str, digest: str) -> bool:
            recipe, row = _row_of(key)
            if recipe not in recipes:
                return True
            return row in self.tables.table(recipe).rows and self.tables.digest(Cell(recipe, row, 0)) == digest

        shown = {key: one for key, one in self.published.cells.items() if is_current(key, one.digest)}
        return Results(shown | {cell.key: ran for cell in cells if (ran := self.look(cell)) is not None})

    def done(self) -> set[Cell]:
        looked = ((cell, self.look(cell)) for cell in all_cells(self.chosen, self.seeds))
        return {cell for cell, measured in looked if measured is not None and measured.state == DONE}


def _row_of(key: str) -> tuple[str, str]:
    recipe, _, row = key.rpartition(" seed=")[0].rpartition(":")
    return recipe, row


def of_results(file: Path) -> Study:
    """Returns the study of a file of results: the claims of each paper of which it has a cell.

    Raises DataError where the file is damaged, or has no such cell; RecipeError: see :func:`check`.
    """
    held = results_file.read(file)
    recipes = {_row_of(key)[0] for key in held.cells}
    registered = every()
    papers = {one.file.paper for one in registered if one.small is not None and one.small.recipe in recipes}
    claims = [one for one in registered if one.file.paper in papers]
    if not claims:
        hint = "of a file of claims: vlcli reproduce claims.yaml --hours 0 -o page.html"
        raise DataError("No cell here belongs to a registered claim.", where=str(file), hint=hint)
    study = Study(claims, claims, file.parent)
    study.results = study.published = held
    check(claims, study.tables)
    return study


class _TimeIsUp(Exception):  # noqa: N818  no error: how a run with --hours ends
    pass


def check(claims: Iterable[Registered], tables: Tables) -> None:
    """Raises RecipeError with every claim whose recipe cannot be loaded, or lacks a row, and the claim's line."""
    problems: dict[str, Problem] = {}
    for one, small in ((one, one.small) for one in claims if one.small is not None):
        recipe = small.recipe
        try:
            rows = tables.table(recipe).rows
        except VlcliError as error:
            what = f"the recipe cannot be used: {error}"
            problems.setdefault(recipe, Problem(one.claim.id, what, one.place, recipe))
            continue
        for row in [row for row in small.cells if row not in rows]:
            hint, what = did_you_mean(row, rows, 1, 0.4), f"the recipe {recipe} has no such row"
            problems[f"{one.claim.id} {row}"] = Problem(one.claim.id, what, one.place, row, ", ".join(rows), hint)
    if problems:
        raise RecipeError(sorted(problems.values(), key=by_place), "claims")


def run(
    study: Study,
    options: RunOptions,
    *,
    hours: float | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> bool:
    """Runs what the chosen claims need, keeping every finished cell at once; returns whether no row failed.

    Args:
        options: how to run each row.
        hours: begin no further cell after this time.
        jobs: stages at a time.
        tell: called with a line about what is run next.
    """
    ends = None if hours is None else time.monotonic() + 3600 * hours
    done, failed = study.done(), set[Cell]()
    testable = {one.claim.id: one for one in study.chosen if one.small is not None}
    waiting = {one: root for one in testable if (root := _lacks(testable[one], study.tables)) is not None}
    if waiting:
        folders = ", ".join(sorted(set(waiting.values())))
        tell(f"{len(waiting)} claims wait for photographs, in folders here: {folders} (vlcli data where RECIPE)")
    testable = {name: one for name, one in testable.items() if name not in waiting}
    jobs_left = [
        Job(name, frozenset(cells_of(one, study.seeds)), chance(one.power, len(seeds_of(one, study.seeds))))
        for name, one in testable.items()
    ]
    estimates = {one.small.recipe: one.small.minutes for one in testable.values() if one.small and one.small.minutes}

    def seconds(cell: Cell) -> float:
        return study.results.seconds(cell, 60 * estimates.get(cell.recipe, _USUAL_SECONDS / 60))

    while ends is None or time.monotonic() < ends:
        if (job := following(jobs_left, done | failed, seconds)) is None:
            break
        missing = [cell for cell in cells_of(testable[job.id], study.seeds) if cell not in done | failed]
        tell(f"{job.id}: {len(missing)} runs, about {sum(map(seconds, missing)) / 60:.0f} minutes")
        _run_cells(study, missing, options, jobs, progress or Silent(), ends, tell)
        done = study.done()
        failed |= {cell for cell in missing if (ran := study.look(cell)) is not None and ran.state != DONE}
    return not failed


def _lacks(one: Registered, tables: Tables) -> str | None:
    # the folder of photographs that a claim needs and that is not here
    if one.small is None or not one.is_real:
        return None
    root = str(tables.table(one.small.recipe).member(one.small.rows[0]).document.value.get("root"))
    return None if Path(root).is_dir() else root


def _run_cells(
    study: Study,
    cells: Sequence[Cell],
    options: RunOptions,
    jobs: int,
    progress: Progress,
    ends: float | None,
    tell: Callable[[str], None],
) -> None:
    # each cell is kept when the next begins, and the last at the end
    table = study.tables.table(cells[0].recipe)
    runs = [RowRun(cell.row, cell.seed, table.member(cell.row, [f"seed={cell.seed}"])) for cell in cells]
    number = itertools.count(1)

    def begins(run: RowRun) -> None:
        _keep(study, table, runs)
        if ends is not None and time.monotonic() >= ends:
            raise _TimeIsUp
        tell(f"{Cell(table.reference, run.label, run.seed).key} ({next(number)} of {len(runs)})")

    try:
        run_rows(runs, options, jobs, progress, begins)
    except _TimeIsUp:
        return
    finally:
        _keep(study, table, runs)


def _keep(study: Study, table: RowTable, runs: Sequence[RowRun]) -> None:
    ended = [run for run in runs if run.error is not None or run.outcomes]
    measured = {}
    for run in ended:
        cell = Cell(table.reference, run.label, run.seed)
        measured[cell.key] = Measured(study.tables.digest(cell), run.state, seconds=run.seconds)
    for label, part in results(table, ended).items() if ended else ():
        for row in part.rows:
            for ran in row.runs:
                if ran.seed is None:
                    continue
                kept = measured[Cell(table.reference, row.label, ran.seed).key]
                if ran.state == DONE:
                    kept.metrics[label], kept.evaluation[label] = ran.metrics, str(ran.evaluation or "")
                else:
                    kept.state, kept.error = FAILED, kept.error or ran.error or ran.state
    new = {key: one for key, one in measured.items() if study.results.cells.get(key) != one}
    if new:
        study.results.cells |= new
        results_file.write(study.folder / results_file.FILE, study.results)
