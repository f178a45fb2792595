"""The examples of some data sets: which there are, what each is keyed on, and each loaded as a model needs it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import copy

import numpy as np

from vlcli.data.columns.joined import joined
from vlcli.data.columns.presence import absent_images, rows_without
from vlcli.data.columns.table import ColumnExamples
from vlcli.data.inputs import Images, Sentences
from vlcli.data.pictures import Draw
from vlcli.data.reader import Reader
from vlcli.data.sample import Example, ImageSample, Sample, TextSample, generator
from vlcli.data.sources import LazyImage
from vlcli.data.transforms.words import mirrored_targets

LoadImage = Callable[[str], ImageSample]


class Examples:
    """Examples of data sets in file order, those left out whose images are not there, each loaded on demand.

    Args:
        readers: data sets.
        sentences: turns text into ids.
        images: loads images.
        seed: the run's seed: which of several captions an example has, and what a random transform draws.
        missing: ``error`` or ``drop``: what to do with examples whose images are not there.
        augments: whether pictures are transformed anew for each example and epoch.

    Raises:
        DataError: an image is missing, and ``missing`` is ``error``.
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
        self.readers, self.sentences, self.images = list(readers), sentences, images
        self.seed, self.missing, self.augments = seed, missing, augments
        self.found: Sequence[Example] = []
        self.starts: list[int] = [0]
        self.dropped_counts: dict[str, int] = {}
        self.reader_counts: dict[str, int] = {}
        self._parts: list[Sequence[Example]] = []
        for reader in self.readers:
            self._take(reader)
        self.found = joined(self._parts)
        self._tokens = [self.sentences.beside(part) for part in self._parts]

    def __len__(self) -> int:
        return len(self.found)

    @property
    def counts(self) -> list[int]:
        """Examples of each data set."""
        return [stop - start for start, stop in zip(self.starts, self.starts[1:], strict=False)]

    @property
    def names(self) -> str:
        """The data sets, for messages."""
        return ", ".join(reader.label for reader in self.readers)

    def only(self, examples: Sequence[Example]) -> Examples:
        """The same loading for other examples: their images must be among those of these data sets."""
        made = copy(self)
        made.found, made.starts = list(examples), [0, len(examples)]
        made._parts, made._tokens = [made.found], [None]
        return made

    def key(self, code: int) -> str:
        """What randomness of an example is keyed on: its data set, its id, and its repetition within the epoch."""
        turn, index = divmod(code, len(self.found))
        return f"{self._reader_of(index)}/{self.found[index].key}" + (f"#{turn}" if turn else "")

    def read_together(self, codes: Sequence[int]) -> dict[int, TextSample]:
        """Read the examples of a batch that are in columns, all in one go.

        Args:
            codes: of the examples.

        Returns:
            Sentences by the examples' numbers, for :meth:`sample`: those that stand beside columns as ids.
        """
        texts: dict[int, TextSample] = {}
        wanted: dict[int, list[int]] = {}
        for code in codes:
            index = code % len(self.found)
            wanted.setdefault(self._reader_of(index), []).append(index)
        for number, indices in wanted.items():
            if isinstance(self._parts[number], ColumnExamples):
                self._read_part(number, indices, texts)
        return texts

    def _read_part(self, number: int, indices: list[int], texts: dict[int, TextSample]) -> None:
        """The examples of one data set, and their sentences."""
        part, tokens, start = self._parts[number], self._tokens[number], self.starts[number]
        assert isinstance(part, ColumnExamples)
        read = part.together([index - start for index in indices])
        if tokens is None or self.augments:
            return
        found = {i: e for i, e in zip(indices, read, strict=True) if e.text is not None and not e.choices}
        rows = [part.row(index - start) for index in found]
        sentences = [example.text or "" for example in found.values()]
        samples = tokens.samples(rows, sentences, [example.text_key for example in found.values()])
        texts.update(zip(found, samples, strict=True))

    def sample(
        self, index: int, epoch: int, key: str, image_of: LoadImage, texts: dict[int, TextSample] | None = None
    ) -> Sample:
        """One example, not corrupted.

        Args:
            index: which.
            epoch: decides the caption, where it has several, and what a random transform draws.
            key: of :meth:`key`.
            image_of: gives an image by name, where nothing is drawn for it.
            texts: what :meth:`read_together` gave; each is taken out, so that nobody else has it.
        """
        example = self.found[index]
        text, text_key = example.text, example.text_key
        if example.choices and text is not None:
            options = [text, *example.choices]
            number = int(generator(self.seed, epoch, key, "caption").integers(len(options)))
            text, text_key = options[number], f"{text_key or example.key}#{number}"
        if not self.augments:
            images = [image_of(name) for name in example.images] if self.images.loads else []
            ready = texts.pop(index, None) if texts else None
            if ready is None:
                ready = self._encoded(index, example, text, text_key)
            return Sample(example.key, ready, images, example.targets)
        draw = Draw(generator(self.seed, epoch, key, "transform"), text, len(example.images))
        images = [self.images.load(name, draw) for name in example.images]
        targets = mirrored_targets(example.targets) if draw.flipped else example.targets
        return Sample(example.key, self.sentences.encode(draw.text, text_key), images, targets)

    def _encoded(self, index: int, example: Example, text: str | None, text_key: str) -> TextSample | None:
        """The sentence as ids: from beside the columns where it stands there."""
        number = self._reader_of(index)
        part, tokens = self._parts[number], self._tokens[number]
        if tokens is None or text is None or example.choices:
            return self.sentences.encode(text, text_key)
        assert isinstance(part, ColumnExamples)
        return tokens.sample(part.row(index - self.starts[number]), text, text_key)

    def draw_donor(self, index: int, epoch: int, rng: np.random.Generator) -> Sample:
        """Another example of the same data set as ``index``, evenly drawn; its images load when they are looked at."""
        reader = self._reader_of(index)
        start, stop = self.starts[reader], self.starts[reader + 1]
        other = index
        if stop - start > 1:  # uniform over all but the example itself
            other = start + int(rng.integers(stop - start - 1))
            other += other >= index
        return self.sample(other, epoch, self.key(other), self._lazy_image)

    def _reader_of(self, index: int) -> int:
        return bisect_right(self.starts, index) - 1

    def _lazy_image(self, name: str) -> ImageSample:
        return LazyImage(name, lambda: self.images.load(name))

    def _take(self, reader: Reader) -> None:
        """Add a reader's examples, those whose images are there."""
        if self.sentences.tokenizer is not None and self.sentences.length is not None:
            reader.fit(self.sentences.tokenizer, self.sentences.length)
        examples = reader.examples()
        kept = self._present(reader, examples)
        label = reader.label
        while label in self.reader_counts:
            label += "'"
        self.reader_counts[label], self.dropped_counts[label] = len(kept), len(examples) - len(kept)
        self._parts.append(kept)
        self.starts.append(self.starts[-1] + len(kept))

    def _present(self, reader: Reader, examples: Sequence[Example]) -> Sequence[Example]:
        """The examples whose images are there."""
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
        if not self.images.loads:
            return set()
        paths = store.paths if needs.regions and store is not None else []
        key = [
            needs.pixels,
            needs.concepts,
            *((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths),
        ]
        if needs.concepts:  # which are there is not known of a file
            return absent_images(examples, self.images.absent, None, None)
        return absent_images(examples, self.images.absent, reader.locate if needs.pixels else None, key)
