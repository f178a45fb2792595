"""Random numbers of many examples at once, equal bit for bit to a generator made for each.

``numpy.random.default_rng(words)`` hashes its seed in 20 microseconds, more than reading a small example takes. The
hash is the same for every example, so here it runs over a whole batch in array operations; the generators made from its
result are numpy's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.random import PCG64, Generator
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

_POOL = 4
_FULL = 0xFFFFFFFF
_WIDE = (1 << 128) - 1
_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
"""Of PCG64's linear congruential step (O'Neill 2014)."""


def seed_states(words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """What ``SeedSequence(row).generate_state(4, uint64)`` gives for each row.

    Args:
        words: (N, W) with W of at least 4; every entry is one word of entropy.

    Returns:
        (N, 4).
    """
    pool = np.concatenate([_mixed(np.ascontiguousarray(words.T))] * 2)  # (8, N)
    states = _hashed(pool, _LAST)
    return np.ascontiguousarray(states.T).astype("<u4").view("<u8").astype(np.uint64)


def _mixed(columns: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The entropy pool of every row: (4, N). One place of it at a time is mixed into the others."""
    constants = _chain(0x43B0D7E5, 0x931E8875, _POOL * len(columns) + 1)

    def taken(count: int) -> list[int]:
        nonlocal constants
        found, constants = constants[: count + 1], constants[count:]
        return found

    pool = _hashed(columns[:_POOL], taken(_POOL))
    for source in range(_POOL):
        places = [place for place in range(_POOL) if place != source]
        pool[places] = _joined(pool[places], _hashed(pool[source], taken(_POOL - 1)))
    for column in columns[_POOL:]:
        pool = _joined(pool, _hashed(column, taken(_POOL)))
    return pool


def _chain(start: int, factor: int, count: int) -> list[int]:
    """Constants of a hash, each the one before times ``factor``."""
    found = [start]
    while len(found) < count:
        found.append(found[-1] * factor & _FULL)
    return found


def _hashed(values: NDArray[np.uint32], constants: Sequence[int]) -> NDArray[np.uint32]:
    """Values (K, N) or (N,) hashed with K constants one after another: (K, N)."""
    column = np.array(constants, np.uint32)[:, None]  # (K + 1, 1)
    found = (values ^ column[:-1]) * column[1:]
    found ^= found >> np.uint32(16)
    return found


def _joined(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> NDArray[np.uint32]:
    found = one * np.uint32(0xCA01F9DD)
    found -= other * np.uint32(0x4973F715)
    found ^= found >> np.uint32(16)
    return found


_LAST = _chain(0x8B51F9DD, 0x58F38DED, 2 * _POOL + 1)


class _Ready(ISeedSequence):
    """A seed that is hashed already."""

    def __init__(self, state: NDArray[np.uint64]) -> None:
        self._state = state

    def generate_state(self, n_words: int, dtype: object = np.uint32) -> NDArray[np.uint64]:
        return self._state


def made(state: NDArray[np.uint64]) -> Generator:
    """The generator of one row of :func:`seed_states`."""
    return Generator(PCG64(_Ready(state)))  # type: ignore[arg-type]  # numpy reads the state of any ISeedSequence


def first_below(state: NDArray[np.uint64], bound: int) -> int:
    """What ``made(state).integers(bound)`` gives, for a bound above 2 ** 32."""
    high, low, order_high, order_low = state.tolist()
    step = ((order_high << 64 | order_low) << 1 | 1) & _WIDE
    current = (step + (high << 64 | low)) * _MULTIPLIER + step  # seeded
    current = (current * _MULTIPLIER + step) & _WIDE
    turn, mixed = current >> 122, (current >> 64 ^ current) & 0xFFFFFFFFFFFFFFFF
    drawn = (mixed >> turn | mixed << (64 - turn)) & 0xFFFFFFFFFFFFFFFF
    product = drawn * bound
    if product & 0xFFFFFFFFFFFFFFFF < bound:  # Lemire's rule may draw again: so rare that numpy may do it
        return int(made(state).integers(bound))
    found: int = product >> 64
    return found
