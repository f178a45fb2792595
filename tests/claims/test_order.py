"""What is run next decides most per minute; rows that claims share are counted once; results stay readable."""

from __future__ import annotations

import json

import pytest

from tests.claims.studies import claim, registered
from vlcli.claims import results_file
from vlcli.claims.load import Power, every
from vlcli.claims.reproduce import Job, chance, following
from vlcli.claims.results_file import Cell, Measured, Results, all_cells, cells_of, seeds_of
from vlcli.errors import DataError

A, B, C, D = (Cell("mine/table", row, 0) for row in "abcd")
DEAR = {A: 10.0, B: 10.0, C: 100.0, D: 10.0}


def order(jobs, done=(), seconds=DEAR.__getitem__):
    found, done = [], set(done)
    while (job := following(jobs, done, seconds)) is not None:
        found.append(job.id)
        done |= job.cells
        jobs = [one for one in jobs if one.cells - done]
    return found


def test_cheap_and_likely_claims_come_first():
    assert order([Job("dear", frozenset([A, C]), 0.9), Job("cheap", frozenset([A, B]), 0.9)]) == ["cheap", "dear"]
    assert order([Job("unlikely", frozenset([A, B]), 0.1), Job("likely", frozenset([A, D]), 0.9)]) == [
        "likely",
        "unlikely",
    ]


def test_a_claim_is_worth_those_that_it_completes():
    jobs = [
        Job("alone", frozenset([A, B]), 0.9),
        Job("two", frozenset([B, D]), 0.6),
        Job("too", frozenset([B, D]), 0.6),
    ]
    assert order(jobs)[0] == "two"


def test_what_has_run_costs_nothing():
    jobs = [Job("new", frozenset([B, D]), 0.9), Job("half done", frozenset([A, C]), 0.9)]
    assert order(jobs, done=[C])[0] == "half done"
    assert following(jobs, {A, B, C, D}, DEAR.__getitem__) is None


def test_rows_that_claims_share_are_run_once(tmp_path):
    claims = registered(tmp_path, claim("one", ("new", "old")), claim("two", ("newer", "old")))
    assert len(all_cells(claims)) == 15
    assert [cell.seed for cell in cells_of(claims[0])] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_further_seeds_are_never_those_of_the_settings(tmp_path):
    one = registered(tmp_path, claim("one", ("new", "old")))[0]
    assert seeds_of(one, 3) == [0, 1, 2]
    assert seeds_of(one, 7) == [0, 1, 2, 3, 4, 5, 6]
    assert 100 not in seeds_of(one, 100)
    assert len(set(seeds_of(one, 100))) == 100


def test_the_registered_seeds_suffice_for_the_registered_power():
    for one in every():
        if one.small is not None:
            assert chance(one.power, len(one.seeds)) >= 0.8, one.claim.id
    assert chance(Power(difference=0.1, deviation=0.05), 1) == 0.0


def test_results_are_read_as_they_were_written(tmp_path):
    kept = Results({A.key: Measured("x", metrics={"": {"top1": 0.5}}, evaluation={"": "/runs/a"}, seconds=12.0)})
    results_file.write(tmp_path / results_file.FILE, kept)
    assert results_file.read(tmp_path / results_file.FILE) == kept
    assert results_file.read(tmp_path / results_file.FILE).of(A, "x").seconds == 12.0
    assert results_file.read(tmp_path / results_file.FILE).of(A, "another recipe") is None
    assert results_file.read(tmp_path / results_file.FILE).of(B, "x") is None
    assert results_file.read(tmp_path / "nowhere" / results_file.FILE) == Results()


def test_a_cell_takes_as_long_as_other_seeds_of_its_row():
    took = Results({Cell("mine/table", "a", 1).key: Measured("x", seconds=30.0), C.key: Measured("x", seconds=90.0)})
    assert took.seconds(A, 60.0) == 30.0
    assert took.seconds(B, 60.0) in (30.0, 90.0)
    assert took.seconds(Cell("other/table", "a", 1), 60.0) == 60.0


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"cells": 3}', '{"version": 9}', '{"cells": {"a": {"state": 1}}}', "\x00"]
)
def test_damaged_results_are_one_message(tmp_path, text):
    (tmp_path / results_file.FILE).write_text(text)
    with pytest.raises(DataError, match="The results of claims are damaged") as caught:
        results_file.read(tmp_path / results_file.FILE)
    assert "none is trained again" in caught.value.hint
    assert str(tmp_path / results_file.FILE) == caught.value.where


def test_results_of_a_later_version_are_refused(tmp_path):
    (tmp_path / results_file.FILE).write_text(json.dumps({"version": 2, "cells": {}}))
    with pytest.raises(DataError):
        results_file.read(tmp_path / results_file.FILE)
