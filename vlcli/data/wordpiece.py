"""Learns a WordPiece vocabulary deterministically.

The trainer of the ``tokenizers`` library breaks ties by the order of a hash table, so that two runs on the same texts
differ; a vocabulary must not, since every checkpoint depends on it.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise

from vlcli.errors import DataError

Pair = tuple[str, str]


def learn(counts: Mapping[str, int], size: int, min_frequency: int = 1) -> list[str]:
    """Learn pieces of words by joining the most frequent neighbours again and again (byte-pair encoding on letters).

    Neighbours rarer than ``min_frequency`` are not joined. Returns the single letters, sorted, then every joined piece
    in the order of joining; pieces that do not begin a word carry ``##``. Raises DataError: there is no word, or more
    letters than ``size``.
    """
    words = sorted(filter(None, counts))
    split = [[word[0], *(f"##{letter}" for letter in word[1:])] for word in words]
    letters = sorted({piece for pieces in split for piece in pieces})
    if not letters or len(letters) > size:
        what = "A vocabulary cannot be made of these texts."
        got = f"{len(words)} words of {len(letters)} letters for {size} pieces"
        expected = "texts with words, and a size with room for every letter"
        raise DataError(what, where="text.vocabulary", got=got, expected=expected, hint="raise text.vocabulary.size")
    joins = _Joins(split, [counts[word] for word in words], min_frequency)
    known = dict.fromkeys(letters)
    while len(known) < size and (piece := joins.next()):
        known.setdefault(piece)
    return list(known)


class _Joins:
    """Neighbouring pairs by frequency, kept up to date as pairs are joined."""

    def __init__(self, split: list[list[str]], weights: list[int], least: int) -> None:
        self.split, self.weights, self.least = split, weights, max(least, 1)
        self.counts: Counter[Pair] = Counter()
        self.words_of: dict[Pair, set[int]] = defaultdict(set)
        for number in range(len(split)):
            self._count(number, 1)
        self.heap = [(-count, pair) for pair, count in self.counts.items()]
        heapq.heapify(self.heap)

    def next(self) -> str | None:
        """Join the most frequent pair (the first by spelling among equals) and return the new piece."""
        while self.heap and -self.heap[0][0] >= self.least:
            count, pair = heapq.heappop(self.heap)
            if self.counts[pair] == -count:
                return self._join(pair)
        return None

    def _join(self, pair: Pair) -> str:
        piece = pair[0] + pair[1].removeprefix("##")
        changed: set[Pair] = set()
        for number in sorted(self.words_of[pair]):
            changed |= self._count(number, -1)
            self.split[number] = _joined(self.split[number], pair, piece)
            changed |= self._count(number, 1)
        for other in changed:
            if self.counts[other] > 0:
                heapq.heappush(self.heap, (-self.counts[other], other))
        return piece

    def _count(self, number: int, sign: int) -> set[Pair]:
        pairs = list(pairwise(self.split[number]))
        for pair in pairs:
            self.counts[pair] += sign * self.weights[number]
            (self.words_of[pair].add if sign > 0 else self.words_of[pair].discard)(number)
        return set(pairs)


def _joined(pieces: list[str], pair: Pair, piece: str) -> list[str]:
    joined: list[str] = []
    rest = iter(range(len(pieces)))
    for index in rest:
        is_pair = tuple(pieces[index : index + 2]) == pair
        joined.append(piece if is_pair else pieces[index])
        if is_pair:
            next(rest)
    return joined
