"""Files of claims: every fault has its line; published numbers, identifiers and seeds agree with one another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vlcli.claims.load import every, of_paper, papers, pick, read
from vlcli.errors import ComponentError, RecipeError, UsageError

GOOD = """\
paper: mine
title: A paper of mine
settings_seeds: [100]
seeds: [0, 1, 2]
power: {difference: 0.1, deviation: 0.05}
worlds: {board: Pictures of one shape on a board of nine cells.}
claims:
  - id: mine-t1-better
    claim: The new encoding is better than the old.
    table: 1
    rows: [new, old]
    metric: top-1
    published: [80.9, 79.9]
    direction: higher
    small: {recipe: tiny/irpe, rows: [product, none], metric: top1, world: board, why: The question asks for places.}
  - id: mine-t2-large
    claim: The large model is better than the small.
    table: figure 2
    rows: [large, small]
    metric: top-1
    published: [82.4, 80.9]
    direction: higher
    small: none
    reason: There is one size of model in small.
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "claims.yaml"
    file.write_text(text)
    return file


def test_a_file_of_claims_is_read_with_the_lines_of_its_claims(tmp_path):
    first, second = read(written(tmp_path, GOOD))
    assert (first.line, second.line) == (8, 16)
    assert first.seeds == [0, 1, 2]
    assert first.claim.table == "1"
    assert first.power.difference == 0.1
    assert second.small is None


EARLIER = """\
earlier:
  - settings: Half as many steps, after which no row had learnt anything.
    seeds: [7, 8]
    verdicts: {mine-t1-better: [opposite, -0.2]}
"""


def test_verdicts_of_an_earlier_registration_stand_beside_the_claim(tmp_path):
    first, second = read(written(tmp_path, GOOD + EARLIER))
    assert first.earlier == [("opposite", -0.2)]
    assert second.earlier == []


@pytest.mark.parametrize(
    ("before", "after", "line", "says"),
    [
        ("seeds: [7, 8]", "seeds: [2, 8]", 4, "judged with these seeds before"),
        ("mine-t1-better: [", "mine-t1-worse: [", 25, "there is no such claim"),
        ("[opposite, -0.2]", "[wrong, -0.2]", 28, "'opposite'"),
    ],
)
def test_faults_of_an_earlier_registration_have_their_line(tmp_path, before, after, line, says):
    assert before in EARLIER
    file = written(tmp_path, GOOD + EARLIER.replace(before, after))
    with pytest.raises(RecipeError, match=says) as caught:
        read(file)
    assert f"{file}:{line}" in str(caught.value)


def test_seeds_of_an_earlier_registration_still_judge_claims_that_it_did_not_judge(tmp_path):
    own = GOOD.replace("small: {", "small: {seeds: [4, 5], ")
    earlier = EARLIER.replace("[7, 8]", "[0, 1]")
    first, _ = read(written(tmp_path, own + earlier))
    assert first.seeds == [4, 5]
    with pytest.raises(RecipeError, match=r"small\.seeds.*judged with these seeds before"):
        read(written(tmp_path, own.replace("[4, 5]", "[1, 5]") + earlier))


FAULTS = {
    "published numbers do not agree": ("[80.9, 79.9]", "[79.9, 80.9]", 8, "do not agree with 'higher'"),
    "equal numbers have no direction": ("published: [80.9, 79.9]", "published: [80.9, 80.9]", 8, "do not agree"),
    "one row twice": ("rows: [product, none]", "rows: [none, none]", 15, "two different rows"),
    "settings seeds judge": ("seeds: [0, 1, 2]\n", "seeds: [0, 100]\n", 4, "cannot judge"),
    "a claim's own seeds too": ("metric: top1,", "metric: top1, seeds: [100],", 8, "cannot judge"),
    "no such world": ("world: board", "world: bord", 8, "there is no such world"),
    "an identifier twice": ("id: mine-t2-large", "id: mine-t1-better", 16, "this identifier is taken"),
    "an identifier of another paper": ("id: mine-t2-large", "id: other-t2", 16, "begin with the paper"),
    "a word that is no key": ("rows: [new, old]\n    metric:", "rows: [new, old]\n    metrics:", 12, "did you mean"),
    "none without a reason": ("\n    reason: There is one size of model in small.", "", 16, "must be given with"),
    "a direction that is none": ("higher\n    small: {", "better\n    small: {", 14, "'higher' or 'lower'"),
    "a number that is a word": ("published: [82.4, 80.9]", "published: [much, 80.9]", 21, "valid number"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_with_its_line(tmp_path, name):
    before, after, line, says = FAULTS[name]
    assert before in GOOD
    file = written(tmp_path, GOOD.replace(before, after))
    with pytest.raises(RecipeError) as caught:
        read(file)
    assert f"{file}:{line}" in str(caught.value)
    assert says in str(caught.value)
    assert "in claims" in str(caught.value)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "claims: [\n", "\x00"])
def test_what_is_no_file_of_claims_is_one_message(tmp_path, text):
    with pytest.raises(RecipeError):
        read(written(tmp_path, text))


def test_an_unknown_paper_names_near_ones():
    with pytest.raises(ComponentError, match="'irp'") as caught:
        of_paper("irp")
    assert "did you mean 'irpe'" in caught.value.hint
    with pytest.raises(UsageError, match="no such file of claims"):
        of_paper("nowhere/claims.yaml")


def test_an_unknown_claim_names_near_ones():
    with pytest.raises(UsageError) as caught:
        pick(every(), ["irpe-t1-produkt"])
    assert "irpe-t1-product" in caught.value.hint


def test_the_registered_claims_are_many_and_unique():
    claims = every()
    assert papers() == ["ace-rpe", "dimbert", "irpe", "lxmert", "vlmo"]
    assert len({one.claim.id for one in claims}) == len(claims) >= 60
    tables = {(one.file.paper, one.claim.table) for one in claims}
    wanted = {"lxmert": "2 3 4 5", "irpe": "1 2 4 5", "dimbert": "4 5 6 7 8", "vlmo": "4 5 6 7", "ace-rpe": "1 6 7 8 9"}
    assert tables >= {(paper, table) for paper, listed in wanted.items() for table in listed.split()}
    assert ("irpe", "figure 3") in tables


def test_published_numbers_stand_in_the_papers(shared):
    texts = {paper: (shared / "papers" / f"{paper}.txt").read_text() for paper in papers()}
    for one in every():
        for number in one.claim.published:
            printed = {f"{number:g}", f"{number:.1f}", f"{number:.2f}"}
            found = any(re.search(rf"(?<![\d.]){re.escape(form)}(?!\d)", texts[one.file.paper]) for form in printed)
            assert found, f"{one.claim.id}: {number}"
