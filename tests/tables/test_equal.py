"""Which measured numbers count as equal to a published one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from vlcli.recipe.locate import Published
from vlcli.tables.equal import Compared, compared, equal_range
from vlcli.tables.results import RowResults, RunResults


@pytest.mark.parametrize(("published", "answers"), [(0.745, 6_967), (0.5, 1_000), (0.98, 12_578)])
def test_a_share_has_wilsons_interval_root_two_times_as_wide(published, answers):
    low, high = proportion_confint(round(published * answers), answers, method="wilson")
    share = round(published * answers) / answers
    wanted = (published - 2**0.5 * (share - low), published + 2**0.5 * (high - share))
    assert equal_range(published, answers) == pytest.approx(wanted, abs=2e-4)


@pytest.mark.parametrize(("published", "answers"), [(1.353, 5_000), (0.407, None), (23.5, None)])
def test_other_numbers_have_two_per_cent(published, answers):
    assert equal_range(published, answers) == pytest.approx((0.98 * published, 1.02 * published))


@settings(max_examples=25)
@given(st.floats(0, 1), st.integers(50, 1_000))
def test_the_number_itself_is_equal_and_more_answers_are_stricter(published, answers):
    low, high = equal_range(published, answers)
    assert 0 <= low <= published <= high <= 1
    less, more = equal_range(published, 4 * answers)
    assert more - less < high - low


@pytest.mark.parametrize(
    ("values", "word"),
    [([0.7], "equal"), ([0.5, 0.9], "equal"), ([0.69], "below"), ([0.9, 0.7], "above"), ([], "missing")],
)
def test_the_mean_over_seeds_is_compared(values, word):
    number = Published(0.72, split="test", measures="test")
    row = RowResults("a", [RunResults(seed, metrics={"top1": one}) for seed, one in enumerate(values)])
    row.published, row.equal = {"top1": number, "top5": number}, {"top1": (0.7, 0.74), "gone": (0.0, 1.0)}
    found = compared(row)
    assert list(found) == ["top1"]
    assert isinstance(found["top1"], Compared)
    assert found["top1"].word == word
