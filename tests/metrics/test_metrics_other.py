"""NLVR2 grouping, ranking with ties, confidence intervals."""

from __future__ import annotations

import json
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli.metrics import classification, interval, ranking


def test_real_dev_set_has_the_official_number_of_groups(shared):
    rows = [json.loads(line) for line in (shared / "data/annotations/nlvr2/dev.json").read_text().splitlines()]
    assert len(rows) == 6_982
    assert len({classification.group_of(row["identifier"]) for row in rows}) == 2_018
    labels = [row["label"] == "True" for row in rows]
    names = [row["identifier"] for row in rows]
    assert classification.consistency(names, [True] * len(rows)) == 1.0
    assert np.mean(labels) == pytest.approx(3_551 / 6_982)
    assert classification.consistency(names, labels) < np.mean(labels)


def test_a_group_is_right_only_if_every_pair_is():
    names = ["dev-1-0-0", "dev-1-1-0", "dev-1-0-1"]
    assert classification.consistency(names, [True, False, True]) == 0.5
    assert classification.consistency([], []) == 0.0


def test_means_by_kind_leave_out_rows_without_one():
    rows = [
        {"kind": "b", "correct": True},
        {"kind": "a", "correct": False},
        {"correct": True},
        {"kind": "b", "correct": 0},
    ]
    assert classification.by_kind(rows, "kind") == {"a": 0.0, "b": 0.5}


def first_hits(scores: np.ndarray, relevant: np.ndarray) -> list[int]:
    """Rank of the first right candidate under every order of the candidates, ties falling as the order has them."""
    found = []
    for order in permutations(range(len(scores))):
        ranked = sorted(order, key=lambda place: -scores[place])
        found.append(next(rank for rank, place in enumerate(ranked, 1) if relevant[place]))
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6), st.integers(1, 6))
def test_ties_count_as_the_mean_over_all_their_orders(candidates, k):
    scores = np.array([[float(score) for score, _ in candidates]])
    relevant = np.array([[right for _, right in candidates]])
    if not relevant.any():
        relevant[0, 0] = True
    place, ranks = ranking.standing(scores, relevant), first_hits(scores[0], relevant[0])
    assert ranking.hit_chance(place, k)[0] == pytest.approx(np.mean([rank <= k for rank in ranks]))
    assert ranking.expected_rank(place)[0] == pytest.approx(np.mean(ranks))


def test_a_constant_model_is_at_chance_both_ways():
    relevant = np.kron(np.eye(20, dtype=bool), np.ones((5, 1), dtype=bool))  # 100 texts, 5 a picture
    found = ranking.both_ways(np.zeros(relevant.shape), relevant)
    assert found["image/r@1"] == pytest.approx(1 / 20)
    assert found["text/r@1"] == pytest.approx(5 / 100)
    assert found["image/r@10"] == pytest.approx(0.5)


def test_perfect_scores_and_several_captions():
    relevant = np.kron(np.eye(4, dtype=bool), np.ones((3, 1), dtype=bool))
    scores = relevant + np.random.default_rng(0).random(relevant.shape) * 0.5
    found = ranking.both_ways(scores, relevant, ks=(1,))
    assert found == {
        "image/r@1": 1.0,
        "image/r_mean": 1.0,
        "image/median_rank": 1.0,
        "text/r@1": 1.0,
        "text/r_mean": 1.0,
        "text/median_rank": 1.0,
        "r_mean": 1.0,
    }


def test_ranking_refuses_what_cannot_be_ranked():
    with pytest.raises(ValueError, match="query 1 has no relevant"):
        ranking.standing(np.zeros((2, 2)), np.array([[True, False], [False, False]]))
    with pytest.raises(ValueError, match="not a number"):
        ranking.standing(np.array([[np.nan, 0.0]]), np.array([[True, False]]))


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216), (30, 2.04227)]
)
def test_t_quantiles_are_those_of_the_tables(freedom, t):
    assert interval.quantile(0.95, freedom) == pytest.approx(t, abs=1e-4)


def test_interval_of_three_seeds():
    found = interval.interval([0.70, 0.74, 0.78])
    assert found.mean == pytest.approx(0.74)
    assert found.half == pytest.approx(4.30265 * 0.04 / 3**0.5, abs=1e-4)
    assert interval.interval([0.5]).half is None
    assert interval.interval([0.5]).text() == "0.500"
    with pytest.raises(ValueError, match="at least one"):
        interval.interval([])


def test_a_seed_without_a_number_leaves_the_interval_without_one():
    found = interval.interval([0.5, 0.6, float("nan")])
    assert found.text() == "nan ± nan"
