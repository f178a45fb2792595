"""Chooses the claim to run next: the one whose cells decide most claims per minute."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache

from vlcli.claims.measurements import Cell
from vlcli.claims.schema import Power

ALPHA = 0.05


@dataclass(frozen=True)
class Job:
    """A claim that is not decided yet, the cells that decide it, and the probability that they do."""

    id: str
    cells: frozenset[Cell]
    chance: float


def following(jobs: Sequence[Job], done: Collection[Cell], seconds: Callable[[Cell], float]) -> Job | None:
    """Returns the claim to run next; None where all cells of all claims are done.

    A claim's worth is the number of claims that can be expected to be decided once its missing cells are done: its own,
    and others whose missing cells are among these. That is divided by the time which these cells take.

    Args:
        jobs: claims, in the order in which equals are run.
        done: cells that need not be run.
        seconds: how long a cell takes.
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
