"""Verdicts: paired by seed, Holm over a paper's table, and nothing is decided before all seeds have run."""

from __future__ import annotations

import pytest
from scipy import stats

from tests.claims.studies import HEAD, UNTESTED, claim, looker, registered
from vlcli.claims.load import read
from vlcli.claims.page import render
from vlcli.claims.results_file import cells_of
from vlcli.claims.verdicts import as_row, counts, judge
from vlcli.claims.words import short

NEW, OLD = [0.90, 0.91, 0.93, 0.92, 0.94], [0.70, 0.72, 0.73, 0.70, 0.74]
ALIKE = [0.71, 0.69, 0.75, 0.72, 0.70]
ROWS = {"new": NEW, "old": OLD, "alike": ALIKE, "broken": "ComponentError: no such option", "short": NEW[:3]}


def words(tmp_path, *claims, rows=ROWS, **options):
    judged = judge(registered(tmp_path, *claims), looker(rows), **options)
    return {one.registered.claim.id.removeprefix("mine-"): one for one in judged}


def test_each_verdict(tmp_path):
    found = words(
        tmp_path,
        claim("right", ("new", "old")),
        claim("wrong", ("old", "new")),
        claim("open", ("alike", "old")),
        claim("lower", ("old", "new"), "lower"),
        claim("broken", ("broken", "old")),
        claim("half", ("short", "old")),
        claim("never", ("later", "old")),
        UNTESTED,
    )
    assert {name: one.word for name, one in found.items()} == {
        "right": "reproduced", "wrong": "opposite", "open": "undecided", "lower": "reproduced",
        "broken": "failed", "half": "not run", "never": "not run", "large": "not in small",
    }  # fmt: skip
    assert found["half"].seeds == 3
    assert abs(found["right"].difference.difference - 0.202) < 1e-9
    assert found["open"].seeds_to_decide > 5
    assert found["broken"].error.startswith("ComponentError")
    assert counts(list(found.values()))["reproduced"] == 2
    follows = {name: found[name].follows for name in ("right", "wrong", "lower", "half", "broken", "large")}
    assert follows == {"right": True, "wrong": False, "lower": True, "half": None, "broken": None, "large": None}


def test_claims_that_have_not_run_count_in_holms_correction(tmp_path):
    weak = {"new": [0.70, 0.76, 0.75, 0.74, 0.79], "old": OLD}
    alone = words(tmp_path, claim("one", ("new", "old")), rows=weak)["one"]
    others = [claim(f"more-{number}", (f"row{number}", "old")) for number in range(9)]
    among = words(tmp_path, claim("one", ("new", "old")), *others, rows=weak)["one"]
    elsewhere = [claim(f"more-{number}", (f"row{number}", "old"), table=2) for number in range(9)]
    apart = words(tmp_path, claim("one", ("new", "old")), *elsewhere, rows=weak)["one"]
    assert among.p == min(1.0, 10 * alone.p)
    assert apart.p == alone.p
    assert (alone.word, among.word) == ("reproduced", "undecided")


def test_differences_that_are_equal_with_all_seeds_decide(tmp_path):
    rows = {"new": [1.0] * 5, "old": [0.25] * 5}
    assert words(tmp_path, claim("one", ("new", "old")), rows=rows)["one"].word == "reproduced"
    rows = {"new": [0.25] * 5, "old": [0.25] * 5}
    assert words(tmp_path, claim("one", ("new", "old")), rows=rows)["one"].word == "undecided"


def test_an_undecided_difference_may_be_surely_smaller_than_the_registered_one(tmp_path):
    rows = {
        "old": OLD,
        "close": [0.71, 0.71, 0.72, 0.71, 0.74],
        "wide": [0.90, 0.55, 0.70, 0.85, 0.60],
        "lower": [value - 0.08 - 0.02 * (place % 2) for place, value in enumerate(OLD)],
    }
    names = ("close", "wide", "lower")
    found = words(tmp_path, *(claim(name, (name, "old")) for name in names), rows=rows)
    assert {name: one.smaller for name, one in found.items()} == {"close": True, "wide": False, "lower": False}
    assert (found["close"].word, found["wide"].word, found["lower"].word) == ("undecided", "undecided", "opposite")
    assert as_row(found["close"])["smaller_than_expected"] is True
    text = render(list(found.values()))
    assert "| *smaller than expected* | 1 | 1 |" in text
    assert "<br>smaller than 0.1 |" in text
    assert next(row for row in short([found["close"]]))[-1].startswith("smaller than 0.1, ")


def test_smaller_than_expected_is_corrected_over_the_table(tmp_path):
    rows = {"old": OLD, "close": [0.72, 0.71, 0.72, 0.76, 0.74]}
    one = claim("close", ("close", "old"))
    alone = words(tmp_path, one, rows=rows)["close"]
    contrast = alone.difference
    assert -0.1 < contrast.low < contrast.high < 0.1
    others = [claim(f"more-{number}", (f"row{number}", "old")) for number in range(60)]
    among = words(tmp_path, one, *others, rows=rows)["close"]
    assert (alone.smaller, among.smaller) == (True, False)
    assert among.p_smaller == pytest.approx(61 * alone.p_smaller)
    pairs = [new - old for new, old in zip(rows["close"], OLD, strict=True)]
    sides = [stats.ttest_1samp(pairs, -0.1, alternative="greater"), stats.ttest_1samp(pairs, 0.1, alternative="less")]
    assert alone.p_smaller == pytest.approx(max(float(side.pvalue) for side in sides))


BOARD = "worlds: {board: Pictures of one shape on a board of nine cells.}"


@pytest.mark.parametrize(
    ("old", "chance", "word"),
    [(0.06, 0.05, "not judged"), (0.5, 0.05, "undecided"), (0.98, 0.05, "not judged"), (0.06, None, "undecided")],
)
def test_a_row_near_chance_or_the_ceiling_judges_nothing(tmp_path, old, chance, word):
    noise = (0.004, -0.003, 0.002, 0.0, -0.001)
    rows = {"old": [old + one for one in noise], "new": [old - 2 * one for one in noise]}
    look = looker(rows) if chance is None else looker(rows, **{"chance/top1": chance})
    [one] = judge(registered(tmp_path, claim("one", ("new", "old"))), look)
    assert one.word == word
    assert one.share == (None if chance is None else pytest.approx((old - chance) / (1 - chance), abs=0.01))
    assert not (one.smaller and word == "not judged")
    if word == "not judged":
        text = render([one])
        assert "### Not judged (1)" in text
        assert f"second row {one.share:.1%} of the way from chance to the ceiling" in text
        assert short([one])[0][-1] in text


def test_a_difference_that_is_found_counts_even_from_chance(tmp_path):
    rows = {"old": [0.05, 0.06, 0.05, 0.04, 0.05], "new": NEW}
    [one] = judge(registered(tmp_path, claim("one", ("new", "old"))), looker(rows, **{"chance/top1": 0.05}))
    assert one.word == "reproduced"


def test_a_world_may_register_chance_and_ceiling(tmp_path):
    board = "worlds: {board: {about: Pictures of one shape on a board of nine cells., chance: 0.1, ceiling: 0.75}}"
    file = tmp_path / "claims.yaml"
    file.write_text((HEAD + claim("one", ("alike", "old"))).replace(BOARD, board))
    [one] = judge(read(file), looker(ROWS, **{"chance/top1": 0.5}))
    assert one.word == "not judged"
    assert one.share == pytest.approx((0.718 - 0.1) / 0.65)


@pytest.mark.parametrize(("planted", "word"), [([0.5, 0.51, 0.52, 0.5, 0.53], "undecided"), (OLD[::-1], "not judged")])
def test_a_planted_difference_must_be_found(tmp_path, planted, word):
    one = claim("one", ("alike", "old")).replace("metric: top1, ", "metric: top1, planted: known, ")
    claims = registered(tmp_path, one)
    assert judge(claims, looker(ROWS))[0].word == "not run"
    assert [cell.row for cell in cells_of(claims[0], 1)] == ["alike", "old", "known"]
    [judged] = judge(claims, looker({**ROWS, "known": planted}))
    assert judged.word == word
    if word == "not judged":
        assert "the planted difference was not found" in render([judged])


def test_fewer_seeds_by_option(tmp_path):
    assert words(tmp_path, claim("half", ("short", "old")), count=3)["half"].word == "reproduced"


def test_the_page_shows_every_claim_and_opposites_as_large_as_others(tmp_path):
    claims = [claim("right", ("new", "old")), claim("wrong", ("old", "new")), claim("open", ("alike", "old"))]
    judged = judge(registered(tmp_path, *claims, claim("never", ("later", "old")), UNTESTED), looker(ROWS))
    text = render(judged, "vlcli reproduce mine")
    for word in ("Reproduced (1)", "Opposite (1)", "Undecided (1)", "Not run (1)", "Not in small (1)"):
        assert f"### {word}\n" in text
    leaning = sum(bool(one.follows) for one in judged)
    assert "| decided | 2 of 4 (50%) | 2 of 4 (50%) |" in text
    assert f"| published direction | {leaning} of 3 | {leaning} of 3 |" in text
    for one in judged:
        assert f"`{one.registered.claim.id}`" in text
    assert "`vlcli reproduce mine --claims mine-wrong`" in text
    assert "80.9, 79.9<br>top-1<br>Table 1" in text
    assert "+0.202 (" in text
    assert "There is one size of model in small." in text
    assert "seeds that would decide" in text
    assert [row[1] for row in short(judged)] == ["reproduced", "opposite", "undecided"]


def test_the_page_shows_what_an_earlier_registration_found(tmp_path):
    earlier = """\
earlier:
  - settings: Half as many steps, after which no row had learnt anything.
    seeds: [90, 91]
    verdicts: {mine-right: [opposite, -0.2], mine-open: [undecided, 0.01]}
"""
    claims = [claim("right", ("new", "old")), claim("open", ("alike", "old")), earlier]
    text = render(judge(registered(tmp_path, *claims), looker(ROWS)))
    assert "(seeds 90, 91) ended with 0 reproduced, 1 opposite, 1 undecided. Half as many steps" in text
    assert "<br>opposite before: -0.200 |" in text
    assert "<br>undecided before: +0.010 |" in text


def test_chance_at_the_ceiling_leaves_no_share(tmp_path):
    [one] = judge(registered(tmp_path, claim("one", ("alike", "old"))), looker(ROWS, **{"chance/top1": 1.0}))
    assert (one.word, one.share) == ("undecided", None)
    assert as_row(one)["share_of_range"] is None


def test_the_cost_counts_the_planted_row(tmp_path):
    one = claim("one", ("later", "old")).replace("metric: top1, ", "metric: top1, planted: known, minutes: 3, ")
    assert "about 45 core-minutes" in render(judge(registered(tmp_path, one), looker(ROWS)))


def test_an_image_whose_name_has_a_space_is_linked(tmp_path):
    judged = judge(registered(tmp_path, claim("one", ("new", "old"))), looker(ROWS))
    assert "](images/my%20page-mine.svg)" in render(judged, plots={"mine": "images/my page-mine.svg"})
