"""Joins the examples of several data sets, each in memory or in columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from vlcli.data.columns.table import ColumnExamples, equal_as_lists
from vlcli.data.sample import Example


class Joined(Sequence[Example]):
    """Several sequences of examples as one."""

    def __init__(self, parts: Sequence[Sequence[Example]]) -> None:
        self.parts = list(parts)
        self.starts = [0, *accumulate(map(len, self.parts))]

    def __len__(self) -> int:
        return self.starts[-1]

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        index = index + len(self) if index < 0 else index
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect_right(self.starts, index) - 1
        return self.parts[number][index - self.starts[number]]

    def __iter__(self) -> Iterator[Example]:
        return chain.from_iterable(self.parts)

    def __eq__(self, other: object) -> Any:
        return equal_as_lists(self, other)

    __hash__ = None  # type: ignore[assignment]


def joined(parts: Sequence[Sequence[Example]]) -> Sequence[Example]:
    """Join sequences: a list where all are lists, the columns alone where they are the only ones."""
    if not any(isinstance(part, ColumnExamples) for part in parts):
        return list(chain.from_iterable(parts))
    return parts[0] if len(parts) == 1 else Joined(parts)


def image_counts(examples: Sequence[Example]) -> NDArray[np.int64]:
    """Return the number of images of each example (N,)."""
    if isinstance(examples, ColumnExamples):
        return examples.image_counts().astype(np.int64)
    if isinstance(examples, Joined):
        return np.concatenate([image_counts(part) for part in examples.parts])
    return np.fromiter((len(example.images) for example in examples), np.int64, len(examples))


def without_text(examples: Sequence[Example]) -> list[int]:
    """Return the numbers of the examples that have no sentence."""
    if isinstance(examples, ColumnExamples):
        rows: list[int] = examples.without_text().tolist()
        return rows
    return [number for number, example in enumerate(examples) if example.text is None]
