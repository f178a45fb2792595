"""Says when a measured number counts as equal to a published one: decided before anything is run."""

from dataclasses import dataclass, field
from typing import Literal

from vlcli.metrics.clustered import score_interval
from vlcli.recipe.locate import Published
from vlcli.tables.results import RowResults
from vlcli.tables.statistics import Estimate, estimate

Word = Literal["equal", "below", "above", "missing"]
SHARE = 0.02
RULE = (
    "A measured number is the mean over the seeds that were run. It counts as equal if it lies in the interval around "
    "the published number: of a share of N answers, Wilson's 95 % interval of that share, sqrt(2) times as wide, since "
    f"two trainings are compared; where N is not known, and of other metrics, {SHARE:.0%} of the number on each side."
)
Range = tuple[float, float]


@dataclass(frozen=True)
class Compared:
    """A published number, the interval that counts as equal to it, and what was measured."""

    published: Published
    range: Range
    measured: Estimate | None = field(default=None)

    @property
    def word(self) -> Word:
        if self.measured is None:
            return "missing"
        low, high = self.range
        return "below" if self.measured.mean < low else "above" if self.measured.mean > high else "equal"


def equal_range(published: float, answers: int | None) -> Range:
    """Return the ends of what equals a published number, a share of ``answers`` (None: none known), by :data:`RULE`."""
    if not answers or not 0 <= published <= 1:
        return published - SHARE * abs(published), published + SHARE * abs(published)
    right = round(published * answers)
    sure = score_interval({str(number): float(number < right) for number in range(answers)})
    assert sure.low is not None
    assert sure.high is not None
    wider = 2**0.5
    return max(published + wider * (sure.low - sure.mean), 0.0), min(published + wider * (sure.high - sure.mean), 1.0)


def compared(row: RowResults) -> dict[str, Compared]:
    """Return every number of a row that has such an interval, with what was measured."""
    known = {metric: ends for metric, ends in row.equal.items() if metric in row.published}
    return {metric: Compared(row.published[metric], ends, estimate(row, metric)) for metric, ends in known.items()}
