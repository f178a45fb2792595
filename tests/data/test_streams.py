"""Random numbers of a whole batch are those of one generator an example."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli.data.sample import generator, generators
from vlcli.data.streams import first_below, generator_of, seed_states

words = st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=5, max_size=5), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(words)
def test_states_are_those_of_a_seed_sequence(rows):
    found = seed_states(np.array(rows, np.uint32))
    for row, state in zip(rows, found, strict=True):
        assert state.tolist() == np.random.SeedSequence(row).generate_state(4, np.uint64).tolist()
        one, other = generator_of(state), np.random.default_rng(row)
        assert one.random(5).tolist() == other.random(5).tolist()
        assert one.integers(97, size=7).tolist() == other.integers(97, size=7).tolist()
    for bound in (2**63 - 1, 3 * 2**61, 2**33):  # of the second, one in four is drawn again
        drawn = [np.random.default_rng(row).integers(bound) for row in rows]
        assert first_below(found, bound).tolist() == drawn


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=8), min_size=1, max_size=4), st.integers(0, 2**40), st.integers(0, 900))
def test_generators_of_a_batch(keys, seed, epoch):
    names = ("mlm", "", "matching")
    found = generators(seed, epoch, keys, names)
    for key, row in zip(keys, found, strict=True):
        for name, state in zip(names, row, strict=True):
            assert generator_of(state).random(3).tolist() == generator(seed, epoch, key, name).random(3).tolist()
