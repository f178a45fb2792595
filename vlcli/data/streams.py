"""Seeds the random generators of many examples at once, equal bit for bit to a generator made for each.

``numpy.random.default_rng(words)`` hashes its seed in 20 microseconds, more than reading a small example takes. Here
the same hash runs over a whole batch in array operations; the generators made from its result are numpy's own.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

_POOL = 4
_FULL = 0xFFFFFFFF
# Of PCG64's linear congruential step (O'Neill 2014).
_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645


def seed_states(words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return ``SeedSequence(row).generate_state(4, uint64)`` (N, 4) of each row of words of entropy (N, W >= 4)."""
    pool = np.concatenate([_mixed(np.ascontiguousarray(words.T))] * 2)  # (8, N)
    return np.ascontiguousarray(_hashed(pool, _LAST).T).astype("<u4").view("<u8").astype(np.uint64)


def _mixed(columns: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the entropy pool of every row (4, N): one word of it at a time is mixed into the others."""
    constants = _chain(0x43B0D7E5, 0x931E8875, _POOL * len(columns) + 1)
    pool = _hashed(columns[:_POOL], constants[: _POOL + 1])
    used = _POOL
    for source in range(_POOL):
        others = [word for word in range(_POOL) if word != source]
        pool[others] = _joined(pool[others], _hashed(pool[source], constants[used : used + _POOL]))
        used += _POOL - 1
    for column in columns[_POOL:]:
        pool = _joined(pool, _hashed(column, constants[used : used + _POOL + 1]))
        used += _POOL
    return pool


def _chain(start: int, factor: int, count: int) -> list[int]:
    return list(accumulate(range(count - 1), lambda last, _: last * factor & _FULL, initial=start))


def _hashed(values: NDArray[np.uint32], constants: Sequence[int]) -> NDArray[np.uint32]:
    """Hash values (K, N) or (N,) with K constants one after another: (K, N)."""
    column = np.array(constants, np.uint32)[:, None]  # (K + 1, 1)
    hashed = (values ^ column[:-1]) * column[1:]
    return hashed ^ hashed >> np.uint32(16)


def _joined(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> NDArray[np.uint32]:
    mixed = one * np.uint32(0xCA01F9DD) - other * np.uint32(0x4973F715)
    mixed ^= mixed >> np.uint32(16)
    return mixed


_LAST = _chain(0x8B51F9DD, 0x58F38DED, 2 * _POOL + 1)


class _Ready(ISeedSequence):
    def __init__(self, state: NDArray[np.uint64]) -> None:
        self._state = state

    def generate_state(self, n_words: int, dtype: object = np.uint32) -> NDArray[np.uint64]:
        return self._state


def generator_of(state: NDArray[np.uint64]) -> Generator:
    """Return the generator of one row of :func:`seed_states`."""
    return Generator(PCG64(_Ready(state)))  # type: ignore[arg-type]  # numpy reads the state of any ISeedSequence


def first_below(states: NDArray[np.uint64], bound: int) -> NDArray[np.int64]:
    """Return ``generator_of(state).integers(bound)`` for each of some states (N, 4) and a bound above 2 ** 32: (N,)."""
    high, low, order_high, order_low = states.T
    one = np.uint64(1)
    step = (order_high << one | order_low >> np.uint64(63), order_low << one | one)
    current = _sum(step, (high, low))
    for _ in range(2):  # seeded, and one step on
        current = _sum(_product(current), step)
    turn, mixed = current[0] >> np.uint64(58), current[0] ^ current[1]
    drawn = mixed >> turn | mixed << (-turn & np.uint64(63))
    numbers = _upper(drawn, np.uint64(bound)).astype(np.int64)
    for row in np.flatnonzero(drawn * np.uint64(bound) < np.uint64((_FULL + 1) ** 2 % bound)).tolist():
        numbers[row] = generator_of(states[row]).integers(bound)  # Lemire's rule draws again, which is rare
    return numbers


# Numbers of 128 bits: the upper and the lower halves, (N,) of uint64 each.
Wide = tuple[Any, Any]
_HALF = np.uint64(32)


def _sum(one: Wide, other: Wide) -> Wide:
    low = one[1] + other[1]
    return one[0] + other[0] + (low < one[1]), low


def _product(one: Wide) -> Wide:
    high, low = np.uint64(_MULTIPLIER >> 64), np.uint64(_MULTIPLIER & 0xFFFFFFFFFFFFFFFF)
    return _upper(one[1], low) + one[1] * high + one[0] * low, one[1] * low


def _upper(one: NDArray[np.uint64], other: np.uint64) -> NDArray[np.uint64]:
    small = np.uint64(_FULL)
    low, high, factor_low, factor_high = one & small, one >> _HALF, other & small, other >> _HALF
    first = high * factor_low + (low * factor_low >> _HALF)
    second = low * factor_high + (first & small)
    upper: NDArray[np.uint64] = high * factor_high + (first >> _HALF) + (second >> _HALF)
    return upper
