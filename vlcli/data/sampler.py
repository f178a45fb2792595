"""Orders the examples of an epoch by (seed, epoch) and cuts them into batches over processes."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.recipe.schema import CurriculumStep

PUNCTUATION = ".,;:!?()'\""


class Curriculum:
    """The examples that are easy enough in an epoch.

    Args:
        steps: the first whose ``until_epoch`` lies ahead decides; behind the last, all examples are drawn from.
        regions: returns the number of regions of a picture; None where pictures have none.

    Raises:
        DataError: a step leaves no example, or asks for regions where there are none.
    """

    def __init__(
        self, steps: Sequence[CurriculumStep], examples: Sequence[Example], regions: Callable[[str], int] | None
    ) -> None:
        self._allowed: list[tuple[int, NDArray[np.bool_]]] = []
        count = None if regions is None else cache(regions)
        for step in steps:
            if step.regions is not None and count is None:
                what = "The curriculum counts regions, and the data have none."
                hint = "leave `regions` out, or use a model that reads regions"
                raise DataError(what, where="curriculum.regions", hint=hint)
            allowed = np.array([_is_easy(step, example, count) for example in examples], bool)
            if not allowed.any():
                raise _nothing(step, examples)
            self._allowed.append((step.until_epoch, allowed))

    def allowed(self, epoch: int) -> NDArray[np.bool_] | None:
        """Return a mask (N,) of the examples that an epoch draws from; None for all."""
        return next((allowed for until, allowed in self._allowed if epoch < until), None)


def _is_easy(step: CurriculumStep, example: Example, regions: Callable[[str], int] | None) -> bool:
    texts = [text.split() for text in (example.text or "", *example.choices)]
    if step.words is not None and max(map(len, texts)) > step.words:
        return False
    later = {word.lower() for word in step.without}
    if later and any(word.strip(PUNCTUATION).lower() in later for text in texts for word in text):
        return False
    if any(example.targets.get(name) not in values for name, values in step.targets.items()):
        return False
    if step.regions is None or regions is None:
        return True
    return all(regions(name) <= step.regions for name in example.images)


def _nothing(step: CurriculumStep, examples: Sequence[Example]) -> DataError:
    asked = {"words": step.words, "regions": step.regions, **step.targets, "without": " ".join(step.without)}
    shortest = min((len(example.text.split()) for example in examples if example.text), default=0)
    what = f"No example is easy enough for the curriculum before epoch {step.until_epoch}."
    got = ", ".join(f"{name}: {value}" for name, value in asked.items() if value not in (None, ""))
    expected = f"a bound that some examples meet; the shortest sentence has {shortest} words"
    hint = "raise `words` or `regions`, or name other `targets` or fewer words in `without`"
    return DataError(what, where="curriculum", got=got, expected=expected, hint=hint)


# Keeps what a curriculum draws apart from the order of whole epochs.
_EASY = 0xEA51
# Codes of an epoch from which on they are kept on the disk.
_MANY = 1 << 18
# (epoch, code): `code` is an example's index plus its repetition within the epoch times the number of examples.
Pick = tuple[int, int]


@dataclass(eq=False)
class Order:
    """The order of examples in each epoch, over several data sets with weights.

    ``weight`` says how often an epoch passes over a data set: 1 once, 2 twice, 0.5 half of it, another half next time
    (its passes are shuffled one after another and cut into epochs, so all its examples come equally often).

    Attributes:
        counts: examples of each data set.
        repeats: copies of an example that follow one another; an epoch keeps its length, of so many times fewer
            examples (repeated augmentation, Hoffer et al. 2020; processes share the copies out).
        curriculum: leaves some examples out of the first epochs, which keep their length.
        groups: a number for each example; an epoch has the examples of a number one after another.
    """

    counts: Sequence[int]
    weights: Sequence[float]
    seed: int
    repeats: int = 1
    curriculum: Curriculum | None = None
    groups: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        self.total = sum(self.counts)
        self.shares = [round(count * weight) for count, weight in zip(self.counts, self.weights, strict=True)]

    def __len__(self) -> int:
        return sum(self.shares)

    def shuffled(self, epoch: int) -> NDArray[np.int64]:
        """Return the codes of one epoch."""
        allowed = None if self.curriculum is None else self.curriculum.allowed(epoch)
        if allowed is None:
            parts = [self._part(number, epoch) for number, share in enumerate(self.shares) if share]
        else:
            parts = self._easy(allowed, epoch)
        rng = self._rng(epoch, len(self.counts))
        codes = rng.permutation(np.concatenate([np.zeros(0, np.int64), *parts]))
        if self.groups is not None:
            codes = codes[rng.permutation(self.total)[self.groups[codes % self.total]].argsort(kind="stable")]
        return codes if self.repeats == 1 else self._repeated(codes)

    def _easy(self, allowed: NDArray[np.bool_], epoch: int) -> list[NDArray[np.int64]]:
        starts = np.cumsum([0, *self.counts])
        easy = [start + np.flatnonzero(allowed[start:stop]) for start, stop in pairwise(starts)]
        here = [number for number, rows in enumerate(easy) if len(rows) and self.shares[number]]
        lacking = len(self) - sum(self.shares[number] for number in here)
        parts = []
        for number in here:
            size = self.shares[number] + (lacking if number == here[0] else 0)  # what others lack, the first gives
            rng = np.random.default_rng([self.seed & 0xFFFFFFFF, epoch, number, _EASY])
            turns = range(-(-size // len(easy[number])))
            passes = [rng.permutation(easy[number]) + turn * self.total for turn in turns]
            parts.append(np.concatenate(passes)[:size].astype(np.int64))
        return parts

    def _repeated(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Each of the first codes several times; copies count as further repetitions, so that they are drawn anew."""
        turns = int(codes.max(initial=0)) // max(self.total, 1) + 1
        copies = np.arange(self.repeats, dtype=np.int64) * turns * self.total
        first = codes[: -(-len(codes) // self.repeats)]
        return (first[:, None] + copies).reshape(-1)[: len(codes)]

    def _part(self, number: int, epoch: int) -> NDArray[np.int64]:
        count, share = self.counts[number], self.shares[number]
        start, stop = epoch * share, (epoch + 1) * share
        first, last = start // count, -(-stop // count)
        offset = sum(self.counts[:number])
        passes = [
            self._rng(turn, number).permutation(count) + (turn - first) * self.total for turn in range(first, last)
        ]
        return offset + np.concatenate(passes)[start - first * count : stop - first * count].astype(np.int64)

    def _rng(self, turn: int, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed & 0xFFFFFFFF, turn, stream])


@dataclass
class Batches:
    """Batches of one epoch, this process's share of each.

    A batch of ``batch_size`` examples is a run of consecutive places in the epoch's order (``shuffle``) or in file
    order, whatever the number of processes; process ``rank`` of ``world`` takes places rank, rank + world ... of it.
    When shuffled, an epoch's last batch may be smaller; if it has fewer examples than there are processes it is left
    out, since every process must take part in every step. In file order nothing is left out: a process without a share
    of the last batch gets none. ``start`` batches are passed over without loading; then every ``stride``-th comes.
    """

    order: Order
    batch_size: int
    shuffle: bool = True
    drop_last: bool = False
    epoch: int = 0
    start: int = 0
    rank: int = 0
    world: int = 1
    stride: int = 1

    def __len__(self) -> int:
        return len(range(self.start, self._count(), self.stride))

    def _count(self) -> int:
        whole, rest = divmod(len(self.order) if self.shuffle else self.order.total, self.batch_size)
        return whole + (not self.drop_last and rest >= (self.world if self.shuffle else self.rank + 1))

    def __iter__(self) -> Iterator[list[Pick]]:
        codes = spilled(self.order.shuffled(self.epoch) if self.shuffle else np.arange(self.order.total))
        for number in range(self.start, self._count(), self.stride):
            chunk = codes[number * self.batch_size : (number + 1) * self.batch_size]
            yield [(self.epoch, code) for code in chunk[self.rank :: self.world].tolist()]


class _OnDisk:
    def __init__(self, numbers: NDArray[np.int64]) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # it goes with this object
        numbers.tofile(self._file)

    def __getitem__(self, wanted: slice) -> NDArray[np.int64]:
        self._file.seek(8 * wanted.start)
        return np.fromfile(self._file, np.int64, wanted.stop - wanted.start)


def spilled(numbers: NDArray[np.int64]) -> NDArray[np.int64] | _OnDisk:
    """Move many codes of an epoch to the disk; return few of them, or on a full disk, as they are."""
    with suppress(OSError):
        if len(numbers) >= _MANY:
            return _OnDisk(numbers)
    return numbers
