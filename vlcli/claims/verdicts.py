"""Judges claims by measured rows: paired differences, Holm's correction over a paper's table."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from vlcli.claims.load import Registered
from vlcli.claims.results_file import Cell, Measured, seeds_of
from vlcli.tables.results import RowResults, RunResults
from vlcli.tables.statistics import ALPHA, Contrast, Estimate, adjusted, contrast, equivalence, estimate

Word = Literal["reproduced", "opposite", "undecided", "not judged", "failed", "not run", "not in small"]
WORDS: tuple[Word, ...] = ("reproduced", "opposite", "undecided", "not judged", "failed", "not run", "not in small")
DECIDED = ("reproduced", "opposite")
# Verdicts on claims whose rows have run with all seeds
COMPLETE = (*DECIDED, "undecided", "not judged")
Look = Callable[[Cell], Measured | None]
"""What a cell measured, or None."""


@dataclass(frozen=True)
class Judged:
    """A claim and what was measured.

    Attributes:
        seeds: number of seeds that all rows have run with, of the ``wanted`` that decide.
        difference: first row minus second, paired by seed.
        p: after Holm's correction over the claims of the paper's table.
        p_smaller: of the statement that the difference lies within plus and minus the registered one, corrected alike.
        chance: score of guessing in the metric; None where it is not known.
        planted: difference of the planted row to the second row.
    """

    registered: Registered
    word: Word
    seeds: int = 0
    wanted: int = 0
    first: Estimate | None = None
    second: Estimate | None = None
    difference: Contrast | None = None
    p: float | None = None
    p_smaller: float | None = None
    chance: float | None = None
    planted: Contrast | None = None
    error: str = ""

    @property
    def sign(self) -> int:
        return 1 if self.registered.claim.direction == "higher" else -1

    @property
    def effect(self) -> tuple[float | None, float | None, float | None]:
        """Difference and interval, positive where they agree with the paper; the lower end first."""
        measured = self.difference
        if measured is None:
            return None, None, None
        ends = [self.sign * end for end in (measured.low, measured.high) if end is not None]
        return self.sign * measured.difference, min(ends, default=None), max(ends, default=None)

    @property
    def follows(self) -> bool | None:
        """Whether the difference has the published direction, sure or not; None where not all seeds have run."""
        if self.difference is None or self.word not in COMPLETE:
            return None
        return self.sign * self.difference.difference > 0

    @property
    def smaller(self) -> bool:
        """Whether an undecided difference is surely within the registered one: two one-sided t tests, each at .025."""
        return self.word == "undecided" and self.p_smaller is not None and self.p_smaller < ALPHA / 2

    @property
    def share(self) -> float | None:
        """Where the second row's mean lies between chance (0) and the ceiling (1); None without chance below it."""
        if self.second is None or self.chance is None or self.chance == self.registered.world.ceiling:
            return None
        return (self.second.mean - self.chance) / (self.registered.world.ceiling - self.chance)

    @property
    def is_visible(self) -> bool:
        """Whether the world can show a difference: the second row has room, and a planted difference is found."""
        low, high = self.registered.file.judged_between
        has_room = self.share is None or low <= self.share <= high
        return has_room and (self.planted is None or _p_of(self.planted) < ALPHA)

    @property
    def seeds_to_decide(self) -> int | None:
        """The seeds that would decide a difference as large as this; None where none below 10,000 would."""
        return self.difference.seeds if self.difference is not None else None


def judge(claims: Sequence[Registered], look: Look, count: int | None = None) -> list[Judged]:
    """Returns the verdict on each claim.

    A claim is judged once its rows have run with all its seeds. Holm's correction counts all claims of a paper's table
    that can be tested in small, those on real photographs apart; one that has not run counts with a p value of 1, so
    that a verdict does not depend on what was run before it. A claim is not judged where no difference is found and the
    second row is near chance or the ceiling, or a planted difference is not found either.

    Args:
        claims: all claims of the papers in question, also those that are not to be run.
        count: seeds, where others than the registered number are wanted.
    """
    measured = {one.claim.id: _measure(one, look, count) for one in claims}
    tables: dict[tuple[str, str, bool], list[Judged]] = defaultdict(list)
    for one in claims:
        if one.small is not None:
            tables[one.file.paper, one.claim.table, one.is_real].append(measured[one.claim.id])
    for listed in tables.values():
        corrected, equivalent = map(adjusted, zip(*map(_p_values, listed), strict=True))
        for judged, p, p_smaller in zip(listed, corrected, equivalent, strict=True):
            if judged.word == "undecided" and p is not None:
                found: Word = "reproduced" if judged.follows else "opposite"
                word: Word = found if p < ALPHA else "undecided" if judged.is_visible else "not judged"
                measured[judged.registered.claim.id] = replace(judged, word=word, p=p, p_smaller=p_smaller)
    return [measured[one.claim.id] for one in claims]


def counts(judged: Sequence[Judged]) -> dict[Word, int]:
    """Returns how many claims have each verdict, in a fixed order."""
    return {word: sum(one.word == word for one in judged) for word in WORDS}


def _measure(one: Registered, look: Look, count: int | None) -> Judged:
    small = one.small
    if small is None:
        return Judged(one, "not in small")
    seeds = seeds_of(one, count)
    cells = {(row, seed): look(Cell(small.recipe, row, seed)) for row in small.cells for seed in seeds}
    labels = (label for cell in cells.values() if cell for label in cell.metrics if label)
    # of the evaluate stage that the metric's name begins with
    label = next((label for label in labels if small.metric.startswith(f"{label}/")), "")
    metric = small.metric.removeprefix(f"{label}/")
    rows = {row: RowResults(row) for row in small.cells}
    for (row, seed), cell in cells.items():
        if cell is not None:
            folder = Path(cell.evaluation[label]) if cell.evaluation.get(label) else None
            rows[row].runs.append(RunResults(seed, cell.state, cell.metrics.get(label, {}), folder, cell.error))
    first, second, *planted = rows.values()
    complete = set.intersection(*(set(row.values(metric)) for row in rows.values()))
    failed = [run for row in rows.values() for run in row.runs if run.state in ("failed", "refused")]
    error = (failed[0].error or failed[0].state) if failed else ""
    word: Word = "failed" if error else "not run" if len(complete) < len(seeds) else "undecided"
    guessed = estimate(second, f"chance/{metric.removeprefix('mean/')}")
    chance = one.world.chance if one.world.chance is not None or guessed is None else guessed.mean
    means = estimate(first, metric), estimate(second, metric)
    judged = Judged(one, word, len(complete), len(seeds), *means, chance=chance, error=error)
    if not complete:
        return judged
    known = contrast(planted[0], second, metric) if planted else None
    return replace(judged, difference=contrast(first, second, metric), planted=known)


def _p_values(one: Judged) -> tuple[float, float]:
    # of a difference, and of one within the registered; both 1 for a claim that has not run
    if one.word != "undecided" or one.difference is None:
        return 1.0, 1.0
    p = equivalence(one.difference, one.registered.power.difference)
    return _p_of(one.difference), 1.0 if p is None else p


def _p_of(difference: Contrast) -> float:
    if difference.p is not None:
        return difference.p
    return 0.0 if difference.difference and difference.count > 1 else 1.0  # every seed has the same difference


def as_row(one: Judged) -> dict[str, Any]:
    """Returns a verdict as JSON has it."""
    parts = {"first": one.first, "second": one.second, "difference": one.difference}
    facts: dict[str, Any] = {"id": one.registered.claim.id, "verdict": one.word}
    facts |= {"seeds": one.seeds, "seeds_wanted": one.wanted, "p_holm": one.p, "error": one.error}
    facts |= {name: None if value is None else asdict(value) for name, value in parts.items()}
    facts |= {"smaller_than_expected": one.smaller, "chance": one.chance, "share_of_range": one.share}
    return facts | {"seeds_to_decide": one.seeds_to_decide, "done": one.word in COMPLETE}
