"""Batches of an epoch: a partition, the same after a resume, divided over processes without loss."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli.data.sampler import Batches, Order

counts = st.lists(st.integers(1, 30), min_size=1, max_size=4)
sizes = st.integers(1, 12)


def codes(batches: Batches) -> list[list[int]]:
    return [[code for _, code in batch] for batch in batches]


@settings(max_examples=60, deadline=None)
@given(counts, sizes, st.integers(0, 5), st.integers(0, 9))
def test_an_epoch_holds_every_example_once(rows: list[int], size: int, epoch: int, seed: int) -> None:
    order = Order(rows, [1.0] * len(rows), seed)
    batches = codes(Batches(order, size, epoch=epoch))
    assert sorted(code for batch in batches for code in batch) == list(range(sum(rows)))
    assert all(len(batch) == size for batch in batches[:-1])
    assert codes(Batches(order, size, shuffle=False)) == [
        list(range(start, min(start + size, sum(rows)))) for start in range(0, sum(rows), size)
    ]


@settings(max_examples=60, deadline=None)
@given(counts, sizes, st.integers(0, 30), st.booleans(), st.booleans())
def test_a_resume_is_the_tail(rows: list[int], size: int, start: int, shuffle: bool, drop: bool) -> None:
    order = Order(rows, [0.7] * len(rows), 3)
    whole = codes(Batches(order, size, shuffle, drop, epoch=2))
    tail = Batches(order, size, shuffle, drop, epoch=2, start=start)
    assert codes(tail) == whole[start:]
    assert len(tail) == len(whole[start:])


@settings(max_examples=60, deadline=None)
@given(counts, sizes, st.integers(1, 4), st.booleans())
def test_processes_take_turns(rows: list[int], size: int, world: int, shuffle: bool) -> None:
    size = max(size, world)
    order = Order(rows, [1.0] * len(rows), 3)
    whole = codes(Batches(order, size, shuffle))
    shares = [codes(Batches(order, size, shuffle, rank=rank, world=world)) for rank in range(world)]
    if shuffle:
        assert len({len(share) for share in shares}) == 1  # every process takes part in every step
    for number, batch in enumerate(whole):
        parts = [share[number] if number < len(share) else [] for share in shares]
        merged = [part[place] for place in range(size) for part in parts if place < len(part)]
        left_out = shuffle and len(batch) < world
        assert merged == ([] if left_out else batch)


@settings(max_examples=60, deadline=None)
@given(counts, st.lists(st.floats(0.05, 3), min_size=4, max_size=4), st.integers(0, 9))
def test_weights_are_passes(rows: list[int], weights: list[float], seed: int) -> None:
    order = Order(rows, weights[: len(rows)], seed)
    epochs = [order.shuffled(epoch) for epoch in range(4)]
    total, start = sum(rows), 0
    for count, weight in zip(rows, weights, strict=False):
        seen = [epoch % total for epoch in epochs]
        seen = [part[(part >= start) & (part < start + count)] for part in seen]
        assert {len(part) for part in seen} == {round(count * weight)}
        often = Counter(np.concatenate(seen).tolist())
        if often:  # no example comes a second time more often than another
            assert max(often.values()) - min(often.get(code, 0) for code in range(start, start + count)) <= 1
        start += count
    assert all(len(set(epoch.tolist())) == len(epoch) for epoch in epochs)  # repetitions are told apart
    assert len(order) == len(epochs[0])


def test_epochs_and_seeds_differ() -> None:
    order = Order([50], [1.0], 0)
    assert not np.array_equal(order.shuffled(0), order.shuffled(1))
    assert not np.array_equal(order.shuffled(0), Order([50], [1.0], 1).shuffled(0))
    assert np.array_equal(order.shuffled(7), Order([50], [1.0], 0).shuffled(7))


def test_a_tail_smaller_than_the_processes_is_left_out_of_training_only() -> None:
    order = Order([9], [1.0], 0)
    assert [len(Batches(order, 4, rank=rank, world=2)) for rank in (0, 1)] == [2, 2]
    assert [len(Batches(order, 4, shuffle=False, rank=rank, world=2)) for rank in (0, 1)] == [3, 2]
    assert len(Batches(order, 4, drop_last=True)) == 2


class Easy:
    """A curriculum over six examples of a first data set and four of a second."""

    def allowed(self, epoch):
        allowed = np.zeros(10, bool)
        allowed[[1, 4, 7]] = True
        return allowed if epoch < 2 else None


def test_a_curriculum_draws_from_the_easy_ones_and_keeps_the_epochs_length():
    order, whole = Order([6, 4], [1, 2], 5, curriculum=Easy()), Order([6, 4], [1, 2], 5)
    for epoch in (0, 1):
        codes = order.shuffled(epoch)
        assert len(codes) == len(set(codes.tolist())) == len(order) == 14
        assert set((codes % 10).tolist()) == {1, 4, 7}
        assert sum(code % 10 == 7 for code in codes) == 8
    assert order.shuffled(0).tolist() != order.shuffled(1).tolist()
    assert order.shuffled(2).tolist() == whole.shuffled(2).tolist()


def test_a_data_set_without_easy_examples_leaves_its_share_to_the_others():
    class First(Easy):
        def allowed(self, epoch):
            return np.arange(10) == 3

    codes = Order([6, 4], [1, 1], 5, curriculum=First()).shuffled(0)
    assert sorted(codes.tolist()) == [3 + 10 * turn for turn in range(10)]


@settings(max_examples=60, deadline=None)
@given(counts, st.integers(1, 3), st.integers(0, 9))
def test_groups_follow_one_another_and_change_no_epochs_examples(rows: list[int], passes: int, seed: int) -> None:
    groups = np.random.default_rng(seed).integers(0, 1 + sum(rows) // 3, sum(rows))
    weights = [float(passes)] * len(rows)
    grouped, plain = Order(rows, weights, seed, groups=groups), Order(rows, weights, seed)
    codes = grouped.shuffled(3)
    assert sorted(codes.tolist()) == sorted(plain.shuffled(3).tolist())
    order = groups[codes % sum(rows)]
    assert len(np.flatnonzero(np.diff(order))) + 1 == len(set(order.tolist()))
    assert np.array_equal(codes, Order(rows, weights, seed, groups=groups).shuffled(3))


def test_groups_and_their_examples_come_in_another_order_in_each_epoch() -> None:
    order = Order([60], [1.0], 0, groups=np.arange(60) // 6)
    first, second = order.shuffled(0).tolist(), order.shuffled(1).tolist()
    assert [code // 6 for code in first] != [code // 6 for code in second]
    assert [code for code in first if code < 6] != [code for code in second if code < 6]
