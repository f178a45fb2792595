"""Runs the rows that registered claims need, those first that decide most per minute, and keeps what they measure."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vlcli.claims import results_file
from vlcli.claims.load import Registered, every
from vlcli.claims.measurements import Cell, all_cells, cells_of, seeds_of
from vlcli.claims.order import Job, chance, following
from vlcli.claims.results_file import Measured, Results
from vlcli.errors import DataError, Problem, RecipeError, VlcliError
from vlcli.progress import Progress, Silent
from vlcli.recipe.check import by_place
from vlcli.recipe.plan import RunOptions
from vlcli.recipe.table import RowTable, load_table
from vlcli.runner.rows import RowRun, results, run_rows
from vlcli.tables.results import DONE, FAILED, RunResults

FOLDER = "reproduce"
"""The folder of results and page under the folder of all runs."""
USUAL_SECONDS = 60.0
"""What a row with one seed is taken to last as long as none of its recipe has run."""


@dataclass
class Tables:
    """The tables that claims name, each loaded once."""

    found: dict[str, RowTable] = field(default_factory=dict)
    digests: dict[tuple[str, str], str] = field(default_factory=dict)

    def table(self, recipe: str) -> RowTable:
        """The table of this name."""
        if recipe not in self.found:
            self.found[recipe] = load_table(recipe)
        return self.found[recipe]

    def digest(self, cell: Cell) -> str:
        """Of the row as a recipe, without its seed; changes with everything that the row says."""
        key = (cell.recipe, cell.row)
        if key not in self.digests:
            value = {**self.table(cell.recipe).member(cell.row).document.value, "seed": None, "about": None}
            text = json.dumps(value, sort_keys=True, default=str)
            self.digests[key] = hashlib.sha256(text.encode()).hexdigest()[:16]
        return self.digests[key]


@dataclass
class Study:
    """Claims with what was measured for them.

    Attributes:
        claims: all claims of the papers in question; Holm's correction counts each.
        chosen: those that are to be run.
        folder: of the file of results.
        seeds: how many seeds each takes; None: as registered.
        page: the page to be written; what the file of results beside it holds need not be run again.
        tables: their recipes.
        results: what was measured so far in the folder.
        published: what the page's file of results holds.
    """

    claims: list[Registered]
    chosen: list[Registered]
    folder: Path
    seeds: int | None = None
    page: Path | None = None
    tables: Tables = field(default_factory=Tables)
    results: Results = field(default_factory=Results)
    published: Results = field(default_factory=Results)

    def __post_init__(self) -> None:
        """Read what earlier runs measured.

        Raises:
            DataError: a file of results is damaged.
        """
        self.results = results_file.read(self.folder)
        if self.page is not None:
            self.published = results_file.read_file(results_file.beside(self.page))

    def look(self, cell: Cell) -> Measured | None:
        """What a cell measured, with the recipe as it is today."""
        digest = self.tables.digest(cell)
        return self.results.of(cell, digest) or self.published.of(cell, digest)

    def shown(self) -> Results:
        """What the page's file of results holds next: the claims' cells as they are today, and what it held.

        Cells of rows that have been edited or removed since are left out: no page shows them.
        """
        cells = all_cells(self.claims, self.seeds)
        found = {cell.key: self.look(cell) for cell in cells}
        recipes = {cell.recipe for cell in cells}
        held = {key: one for key, one in self.published.cells.items() if self._of_today(key, one, recipes)}
        return Results({key: one for key, one in {**held, **found}.items() if one is not None})

    def _of_today(self, key: str, measured: Measured, recipes: set[str]) -> bool:
        """Whether a cell was measured with its row as it is today; true of other recipes than ``recipes``."""
        recipe, _, row = key.rpartition(" seed=")[0].rpartition(":")
        if recipe not in recipes:
            return True
        rows = self.tables.table(recipe).rows
        return row in rows and self.tables.digest(Cell(recipe, row, 0)) == measured.digest

    def done(self) -> set[Cell]:
        """The cells that need not be run."""
        found = ((cell, self.look(cell)) for cell in all_cells(self.chosen, self.seeds))
        return {cell for cell, measured in found if measured is not None and measured.state == DONE}


def of_results(file: Path) -> Study:
    """The study of a file of results: the claims of each paper of which it has a cell.

    Args:
        file: ``results.json`` of a folder, or the file beside a page.

    Raises:
        DataError: the file is damaged, or holds no cell of a registered claim.
        RecipeError: a recipe that a claim names cannot be loaded.
    """
    held = results_file.read_file(file)
    recipes = {key.rpartition(" seed=")[0].rpartition(":")[0] for key in held.cells}
    claims = every()
    papers = {one.file.paper for one in claims if one.small is not None and one.small.recipe in recipes}
    found = [one for one in claims if one.file.paper in papers]
    if not found:
        hint = "of a file of claims: vlcli reproduce claims.yaml --hours 0 -o page.html"
        raise DataError("No cell here belongs to a registered claim.", where=str(file), hint=hint)
    study = Study(found, found, file.parent)
    study.results = study.published = held
    check(found, study.tables)
    return study


class _TimeIsUp(Exception):  # noqa: N818  no error: how a run with --hours ends
    pass


def check(claims: Iterable[Registered], tables: Tables) -> None:
    """Whether the recipes and rows that claims name are there.

    Raises:
        RecipeError: every claim whose recipe cannot be loaded, or has no such row; with the line of the claim.
    """
    problems: dict[str, Problem] = {}
    for one in claims:
        if one.small is None:
            continue
        recipe = one.small.recipe
        try:
            rows = tables.table(recipe).rows
        except VlcliError as error:
            what = f"the recipe cannot be used: {error}"
            problems.setdefault(recipe, Problem(one.claim.id, what, one.place, recipe))
            continue
        for row in one.small.rows:
            if row not in rows:
                close = difflib.get_close_matches(row, rows, n=1, cutoff=0.4)
                hint = f"did you mean {close[0]!r}?" if close else ""
                what = f"the recipe {recipe} has no such row"
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
    """Run what the chosen claims need; every finished cell is kept at once.

    Args:
        study: claims, and what was measured before.
        options: how to run each row.
        hours: begin no further cell after this time.
        jobs: stages at a time.
        progress: where stages report.
        tell: takes a line about what is run next.

    Returns:
        Whether no row failed.
    """
    ends = None if hours is None else time.monotonic() + 3600 * hours
    done, failed = study.done(), set[Cell]()
    jobs_left = [_job(one, study.seeds) for one in study.chosen if one.small is not None]
    names = {one.claim.id: one for one in study.chosen}
    while ends is None or time.monotonic() < ends:
        job = following(jobs_left, done | failed, lambda cell: study.results.seconds(cell, USUAL_SECONDS))
        if job is None:
            break
        missing = [cell for cell in cells_of(names[job.id], study.seeds) if cell not in done | failed]
        tell(_line(study, job, missing))
        _run_cells(study, missing, options, jobs, progress or Silent(), ends, tell)
        done = study.done()
        failed |= {cell for cell in missing if (found := study.look(cell)) is not None and found.state != DONE}
    return not failed


def _job(one: Registered, count: int | None) -> Job:
    seeds = seeds_of(one, count)
    return Job(one.claim.id, frozenset(cells_of(one, count)), chance(one.power, len(seeds)))


def _line(study: Study, job: Job, missing: Sequence[Cell]) -> str:
    seconds = sum(study.results.seconds(cell, USUAL_SECONDS) for cell in missing)
    return f"{job.id}: {len(missing)} runs, about {seconds / 60:.0f} minutes"


def _run_cells(
    study: Study,
    cells: Sequence[Cell],
    options: RunOptions,
    jobs: int,
    progress: Progress,
    ends: float | None,
    tell: Callable[[str], None],
) -> None:
    """Cells of one recipe, seed by seed; each is kept when the next begins, and the last at the end."""
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
    """Write down the runs that have ended."""
    ended = [run for run in runs if run.error is not None or run.outcomes]
    found = {(run.label, run.seed): _begun(study, table, run) for run in ended}
    for label, part in results(table, ended).items() if ended else ():
        for row in part.rows:
            for measured in row.runs:
                if measured.seed is not None:
                    _add(found[row.label, measured.seed], label, measured)
    cells = {Cell(table.reference, label, seed).key: measured for (label, seed), measured in found.items()}
    new = {key: measured for key, measured in cells.items() if study.results.cells.get(key) != measured}
    if new:
        study.results.cells |= new
        results_file.write(study.folder, study.results)


def _begun(study: Study, table: RowTable, run: RowRun) -> Measured:
    digest = study.tables.digest(Cell(table.reference, run.label, run.seed))
    return Measured(digest, run.state, seconds=run.seconds)


def _add(kept: Measured, label: str, measured: RunResults) -> None:
    """What one evaluate stage of a run measured, or why it did not."""
    if measured.state == DONE:
        kept.metrics[label], kept.evaluation[label] = measured.metrics, str(measured.evaluation or "")
    else:
        kept.state, kept.error = FAILED, kept.error or measured.error or measured.state
