"""Judges claims by measured rows: paired differences, Holm's correction over a paper's table."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from vlcli.claims.load import Registered
from vlcli.claims.results_file import Cell, Measured, seeds_of
from vlcli.tables.results import RowResults, RunResults
from vlcli.tables.statistics import ALPHA, Contrast, Estimate, adjusted, contrast, estimate

Word = Literal["reproduced", "opposite", "undecided", "failed", "not run", "not in small"]
WORDS: tuple[Word, ...] = ("reproduced", "opposite", "undecided", "failed", "not run", "not in small")
DECIDED = ("reproduced", "opposite")
Look = Callable[[Cell], Measured | None]
"""What a cell measured, or None."""


@dataclass(frozen=True)
class Judged:
    """A claim and what was measured.

    Attributes:
        seeds: number of seeds that both rows have run with.
        wanted: number of seeds that decide.
        difference: first row minus second, paired by seed.
        p: after Holm's correction over the claims of the paper's table.
    """

    registered: Registered
    word: Word
    seeds: int = 0
    wanted: int = 0
    first: Estimate | None = None
    second: Estimate | None = None
    difference: Contrast | None = None
    p: float | None = None
    error: str = ""

    @property
    def sign(self) -> int:
        """+1 where the paper says that the first row is higher, else -1."""
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
        if self.difference is None or self.word not in (*DECIDED, "undecided"):
            return None
        return self.sign * self.difference.difference > 0

    @property
    def smaller(self) -> bool:
        """Whether the 95 % interval of an undecided difference lies within plus and minus the registered one.

        This is a test of equivalence by two one-sided t tests, each at .025.
        """
        _, low, high = self.effect
        if self.word != "undecided" or low is None or high is None:
            return False
        return max(-low, high) < self.registered.power.difference

    @property
    def seeds_to_decide(self) -> int | None:
        """The seeds that would decide a difference as large as this; None where none below 10,000 would."""
        return self.difference.seeds if self.difference is not None else None


def judge(claims: Sequence[Registered], look: Look, count: int | None = None) -> list[Judged]:
    """Returns the verdict on each claim.

    A claim is judged once both rows have run with all its seeds. Holm's correction counts all claims of a paper's table
    that can be tested in small, those on real photographs apart; one that has not run counts with a p value of 1, so
    that a verdict does not depend on what was run before it.

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
        for judged, p in zip(listed, adjusted([_p(judged) for judged in listed]), strict=True):
            if judged.word == "undecided" and p is not None:
                word: Word = "undecided" if p >= ALPHA else "reproduced" if judged.follows else "opposite"
                measured[judged.registered.claim.id] = replace(judged, word=word, p=p)
    return [measured[one.claim.id] for one in claims]


def counts(judged: Sequence[Judged]) -> dict[Word, int]:
    """Returns how many claims have each verdict, in a fixed order."""
    return {word: sum(one.word == word for one in judged) for word in WORDS}


def _measure(one: Registered, look: Look, count: int | None) -> Judged:
    small = one.small
    if small is None:
        return Judged(one, "not in small")
    seeds = seeds_of(one, count)
    cells = {(row, seed): look(Cell(small.recipe, row, seed)) for row in small.rows for seed in seeds}
    labels = (label for cell in cells.values() if cell for label in cell.metrics if label)
    # of the evaluate stage that the metric's name begins with
    label = next((label for label in labels if small.metric.startswith(f"{label}/")), "")
    metric = small.metric.removeprefix(f"{label}/")
    first, second = (RowResults(row) for row in small.rows)
    for (row, seed), cell in cells.items():
        if cell is not None:
            folder = Path(cell.evaluation[label]) if cell.evaluation.get(label) else None
            run = RunResults(seed, cell.state, cell.metrics.get(label, {}), folder, cell.error)
            (first if row == first.label else second).runs.append(run)
    both = first.values(metric).keys() & second.values(metric).keys()
    failed = [run for run in first.runs + second.runs if run.state in ("failed", "refused")]
    error = (failed[0].error or failed[0].state) if failed else ""
    word: Word = "failed" if error else "not run" if len(both) < len(seeds) else "undecided"
    judged = Judged(one, word, len(both), len(seeds), estimate(first, metric), estimate(second, metric), error=error)
    return replace(judged, difference=contrast(first, second, metric)) if both else judged


def _p(one: Judged) -> float:
    # 1 for a claim that has not run
    difference = one.difference
    if one.word != "undecided" or difference is None:
        return 1.0
    if difference.p is not None:
        return difference.p
    return 0.0 if difference.difference and difference.count > 1 else 1.0  # every seed has the same difference


def as_row(one: Judged) -> dict[str, Any]:
    """Returns a verdict as JSON has it."""
    parts = {"first": one.first, "second": one.second, "difference": one.difference}
    facts: dict[str, Any] = {"id": one.registered.claim.id, "verdict": one.word}
    facts |= {"seeds": one.seeds, "seeds_wanted": one.wanted, "p_holm": one.p, "error": one.error}
    facts |= {name: None if value is None else asdict(value) for name, value in parts.items()}
    facts["smaller_than_expected"] = one.smaller
    return facts | {"seeds_to_decide": one.seeds_to_decide, "done": one.word in (*DECIDED, "undecided")}
