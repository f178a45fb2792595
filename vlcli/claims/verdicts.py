"""What measured rows say about a published direction: paired differences, Holm's correction over a paper's table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vlcli.claims.load import Registered
from vlcli.claims.measurements import Cell, seeds_of
from vlcli.claims.results_file import Measured
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
        registered: the claim.
        word: the verdict.
        seeds: that both rows have run with.
        wanted: seeds that decide.
        first: the first row's metric, or None.
        second: the second row's.
        difference: first minus second, paired by seed, or None.
        p: its p value after Holm's correction over the claims of the paper's table.
        error: why a row failed.
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
    def follows(self) -> bool | None:
        """Whether the difference has the published direction, sure or not; None where not all seeds have run."""
        if self.difference is None or self.word not in (*DECIDED, "undecided"):
            return None
        return self.sign * self.difference.difference > 0

    @property
    def smaller(self) -> bool:
        """Whether an undecided difference is surely smaller than the registered one (``power``), in either direction.

        Its whole 95 % interval lies between minus and plus this difference: a test of equivalence by two one-sided t
        tests, each at .025.
        """
        found = self.difference
        if self.word != "undecided" or found is None or found.low is None or found.high is None:
            return False
        expected = self.registered.power.difference
        return -expected < found.low and found.high < expected


def judge(claims: Sequence[Registered], look: Look, count: int | None = None) -> list[Judged]:
    """The verdict on each claim.

    A claim is judged once both rows have run with all its seeds. Holm's correction counts all claims of a paper's table
    that can be tested in small; one that has not run counts with a p value of 1, so that a verdict does not depend on
    what was run before it.

    Args:
        claims: all claims of the papers in question, also those that are not to be run.
        look: what a cell measured.
        count: seeds, where others than the registered number are wanted.
    """
    measured = {one.claim.id: _measure(one, look, count) for one in claims}
    tables: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in claims:
        if one.small is not None:
            tables[one.file.paper, one.claim.table].append(one.claim.id)
    found: dict[str, float | None] = {}
    for listed in tables.values():
        found |= zip(listed, adjusted([_p(measured[name]) for name in listed]), strict=True)
    return [_with_word(measured[one.claim.id], found.get(one.claim.id)) for one in claims]


def counts(judged: Sequence[Judged]) -> dict[Word, int]:
    """How many claims have each verdict, in a fixed order."""
    return {word: sum(one.word == word for one in judged) for word in WORDS}


def seeds_to_decide(one: Judged) -> int | None:
    """The seeds that would decide a difference as large as the measured one; None where none below 10,000 would."""
    return one.difference.seeds if one.difference is not None else None


def _measure(one: Registered, look: Look, count: int | None) -> Judged:
    if one.small is None:
        return Judged(one, "not in small")
    seeds, (label, metric) = seeds_of(one, count), _named(one, look, count)
    rows = [RowResults(row, _runs(one, row, seeds, look, label)) for row in one.small.rows]
    both = set(rows[0].values(metric)) & set(rows[1].values(metric))
    failed = next(
        (run.error or run.state for row in rows for run in row.runs if run.state in ("failed", "refused")), ""
    )
    word: Word = "failed" if failed else "not run" if len(both) < len(seeds) else "undecided"
    first, second = (estimate(row, metric) for row in rows)
    found = contrast(rows[0], rows[1], metric) if both else None
    return Judged(one, word, len(both), len(seeds), first, second, found, None, failed)


def _named(one: Registered, look: Look, count: int | None) -> tuple[str, str]:
    """The evaluate stage's label and the metric's plain name that a claim's metric means."""
    assert one.small is not None
    metric = one.small.metric
    for row in one.small.rows:
        for seed in seeds_of(one, count):
            found = look(Cell(one.small.recipe, row, seed))
            for label in found.metrics if found is not None else ():
                if label and metric.startswith(f"{label}/"):
                    return label, metric.removeprefix(f"{label}/")
    return "", metric


def _runs(one: Registered, row: str, seeds: Sequence[int], look: Look, label: str) -> list[RunResults]:
    from pathlib import Path

    assert one.small is not None
    runs = []
    for seed in seeds:
        found = look(Cell(one.small.recipe, row, seed))
        if found is None:
            continue
        folder = found.evaluation.get(label)
        metrics = found.metrics.get(label, {})
        runs.append(RunResults(seed, found.state, metrics, Path(folder) if folder else None, found.error))
    return runs


def _p(one: Judged) -> float:
    """The p value of a claim that has run; 1 of one that has not."""
    found = one.difference
    if one.word != "undecided" or found is None:
        return 1.0
    if found.p is not None:
        return found.p
    return 0.0 if found.difference and found.count > 1 else 1.0  # every seed has the same difference


def _with_word(one: Judged, p: float | None) -> Judged:
    from dataclasses import replace

    if one.word != "undecided" or one.difference is None or p is None:
        return one
    if p >= ALPHA:
        return replace(one, p=p)
    word: Word = "reproduced" if one.difference.difference * one.sign > 0 else "opposite"
    return replace(one, word=word, p=p)


def as_row(one: Judged) -> dict[str, Any]:
    """A verdict as JSON."""
    from dataclasses import asdict

    facts: dict[str, Any] = {"id": one.registered.claim.id, "verdict": one.word}
    facts |= {"seeds": one.seeds, "seeds_wanted": one.wanted, "p_holm": one.p, "error": one.error}
    for name in ("first", "second", "difference"):
        value = getattr(one, name)
        facts[name] = None if value is None else asdict(value)
    facts["smaller_than_expected"] = one.smaller
    return facts | {"seeds_to_decide": seeds_to_decide(one), "done": one.word in (*DECIDED, "undecided")}


__all__ = ["DECIDED", "WORDS", "Judged", "Look", "as_row", "counts", "judge", "seeds_to_decide"]
