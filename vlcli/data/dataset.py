"""Loads the examples of data sets as a model needs them, and makes the objectives' corrupted views."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from vlcli.data.collate import CLEAN
from vlcli.data.columns.index import absent_images, rows_without
from vlcli.data.columns.table import ColumnExamples, joined
from vlcli.data.inputs import Images, LazyImage, Sentences
from vlcli.data.pictures import Draw
from vlcli.data.reader import Reader
from vlcli.data.sample import PHASES, Corruption, Example, ImageSample, Sample, TextSample, generator, generators
from vlcli.data.sampler import Pick
from vlcli.data.streams import generator_of
from vlcli.data.transforms.base import mirrored_targets
from vlcli.data.vocabulary import Tokenizer

LoadImage = Callable[[str], ImageSample]


class Examples:
    """Examples of data sets in file order, each loaded on demand; those whose images are missing are left out.

    Args:
        seed: the run's seed: decides which of several captions an example has, and what a random transform draws.
        missing: ``error`` or ``drop``, for examples whose images are not there; DataError with ``error``.
        augments: whether pictures are transformed anew for each example and epoch.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        sentences: Sentences,
        images: Images,
        *,
        seed: int = 0,
        missing: str = "error",
        augments: bool = False,
    ) -> None:
        self.sentences, self.images = sentences, images
        self.seed, self.missing, self.augments = seed, missing, augments
        self.dropped_counts: dict[str, int] = {}
        self.reader_counts: dict[str, int] = {}
        self._parts: list[Sequence[Example]] = []
        for reader in readers:
            if sentences.tokenizer is not None and sentences.length is not None:
                reader.fit(sentences.tokenizer, sentences.length)
            examples = reader.examples()
            kept = self._present(reader, examples)
            label = reader.label
            while label in self.reader_counts:
                label += "'"
            self.reader_counts[label], self.dropped_counts[label] = len(kept), len(examples) - len(kept)
            self._parts.append(kept)
        self.starts = [0, *accumulate(map(len, self._parts))]
        self.all: Sequence[Example] = joined(self._parts)
        self._tokens = [self.sentences.beside(part) for part in self._parts]

    def only(self, examples: Sequence[Example]) -> Examples:
        """Return a copy that loads other examples, whose images must be among those of these data sets."""
        other = copy(self)
        other.all, other.starts = list(examples), [0, len(examples)]
        other._parts, other._tokens = [other.all], [None]
        return other

    def key(self, code: int) -> str:
        """Return the key of an example's random draws: its data set, its id, and its repetition within the epoch."""
        turn, index = divmod(code, len(self.all))
        return f"{self._reader_of(index)}/{self.all[index].key}" + (f"#{turn}" if turn else "")

    def read_together(self, codes: Sequence[int]) -> dict[int, TextSample]:
        """Return a batch's sentences whose ids are beside columns, by the examples' numbers, for :meth:`sample`."""
        texts: dict[int, TextSample] = {}
        wanted: dict[int, list[int]] = defaultdict(list)
        for index in (code % len(self.all) for code in codes):
            wanted[self._reader_of(index)].append(index)
        for number, indices in wanted.items():
            part, tokens, start = self._parts[number], self._tokens[number], self.starts[number]
            if isinstance(part, ColumnExamples):
                read = zip(indices, part.together([index - start for index in indices]), strict=True)
                if tokens is not None and not self.augments:
                    alone = {i: one for i, one in read if one.text is not None and not one.choices}
                    rows, sentences = [part.row(i - start) for i in alone], [one.text or "" for one in alone.values()]
                    samples = tokens.samples(rows, sentences, [one.text_key for one in alone.values()])
                    texts.update(zip(alone, samples, strict=True))
        return texts

    def sample(
        self, index: int, epoch: int, key: str, image_of: LoadImage, texts: dict[int, TextSample] | None = None
    ) -> Sample:
        """Load one example, not corrupted.

        Args:
            epoch: decides the caption, where it has several, and what a random transform draws.
            image_of: gives an image by name, where no transform draws for it.
            texts: of :meth:`read_together`; the example's is taken out, so that it has one owner.
        """
        example = self.all[index]
        text, text_key = example.text, example.text_key
        if example.choices and text is not None:
            options = [text, *example.choices]
            number = int(generator(self.seed, epoch, key, "caption").integers(len(options)))
            text, text_key = options[number], f"{text_key or example.key}#{number}"
        if not self.augments:
            images = [image_of(name) for name in example.images] if self.images.loads else []
            encoded = texts.pop(index, None) if texts else None
            if encoded is None:
                encoded = self._encoded(index, example, text, text_key)
            return Sample(example.key, encoded, images, example.targets)
        draw = Draw(generator(self.seed, epoch, key, "transform"), text, len(example.images))
        images = [self.images.load(name, draw) for name in example.images]
        targets = mirrored_targets(example.targets) if draw.flipped else example.targets
        return Sample(example.key, self.sentences.encode(draw.text, text_key), images, targets)

    def _encoded(self, index: int, example: Example, text: str | None, text_key: str) -> TextSample | None:
        number = self._reader_of(index)
        part, tokens = self._parts[number], self._tokens[number]
        if tokens is None or text is None or example.choices:
            return self.sentences.encode(text, text_key)
        assert isinstance(part, ColumnExamples)
        return tokens.samples([part.row(index - self.starts[number])], [text], [text_key])[0]

    def draw_donor(self, index: int, epoch: int, rng: np.random.Generator) -> Sample:
        """Draw another example of the same data set as ``index``; its images load on first access."""
        reader = self._reader_of(index)
        start, count = self.starts[reader], len(self._parts[reader])
        other = index
        if count > 1:  # uniform over all but the example itself
            other = start + int(rng.integers(count - 1))
            other += other >= index
        return self.sample(other, epoch, self.key(other), lambda name: LazyImage(name, lambda: self.images.load(name)))

    def _reader_of(self, index: int) -> int:
        return bisect_right(self.starts, index) - 1

    def _present(self, reader: Reader, examples: Sequence[Example]) -> Sequence[Example]:
        if not self.images.loads:
            return examples
        if isinstance(examples, ColumnExamples):
            absent = self._absent_of(reader, examples)
        else:
            absent = self.images.absent(list(dict.fromkeys(name for example in examples for name in example.images)))
        if not absent:
            return examples
        if self.missing != "drop":
            total = len({name for example in examples for name in example.images})
            raise self.images.missing_error(reader.label, absent, total)
        if isinstance(examples, ColumnExamples):
            return examples.where(rows_without(examples, absent))
        return [example for example in examples if absent.isdisjoint(example.images)]

    def _absent_of(self, reader: Reader, examples: ColumnExamples) -> set[str]:
        needs, store = self.images.needs, self.images.store
        if needs.concepts:  # which are there is not known of a file
            return absent_images(examples, self.images.absent, None, None)
        stats = [(path, path.stat()) for path in store.paths] if needs.regions and store is not None else []
        key = [needs.pixels, False, *((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats)]
        return absent_images(examples, self.images.absent, reader.locate if needs.pixels else None, key)


class CorruptionStep:
    """The corruptions of the objectives by view, in each view in the order of phases."""

    def __init__(
        self, corruptions: Sequence[Corruption], tokenizer: Tokenizer | None, length: int | None, seed: int
    ) -> None:
        for corruption in corruptions:
            corruption.ready(tokenizer, length)
        views = [corruption.view for corruption in corruptions]
        self.seed = seed
        self.corruptions = sorted(corruptions, key=lambda one: (views.index(one.view), PHASES.index(one.phase)))

    def states(self, picks: Sequence[Pick], keys: Sequence[str]) -> NDArray[np.uint64]:
        """Return the states of each example's generators (B, corruptions + 1, 4); the last draws the example's seed."""
        names = [corruption.name for corruption in self.corruptions]
        return generators(self.seed, [epoch for epoch, _ in picks], list(keys), [*names, ""])

    def views(
        self, clean: Sample, epoch: int, states: NDArray[np.uint64], donor: Callable[[np.random.Generator], Sample]
    ) -> dict[str, Sample]:
        """Return a sample clean and in every view that a corruption of this epoch makes of it.

        Args:
            states: the example's row of :meth:`states`.
            donor: draws another example with a corruption's generator.
        """
        views = {CLEAN: clean}
        for corruption, state in zip(self.corruptions, states, strict=False):
            if corruption.acts(epoch):
                view = views.get(corruption.view) or views.setdefault(corruption.view, clean.fork())
                rng = generator_of(state)
                corruption(view, rng, partial(donor, rng))
        return views
