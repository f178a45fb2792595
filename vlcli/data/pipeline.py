"""From readers to batches: what a model and its objectives asked for, the same whatever the workers or a resume."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, get_worker_info

from vlcli.data.collate import CLEAN, Item, collate
from vlcli.data.curriculum import Curriculum, Step
from vlcli.data.images import PictureError
from vlcli.data.loader import Loader, NothingReadableError
from vlcli.data.pictures import Draw, Pictures, normalised
from vlcli.data.reader import Reader
from vlcli.data.region_table import RegionTable
from vlcli.data.sample import (
    PHASES,
    Corruption,
    Donor,
    Example,
    ImageSample,
    Sample,
    TextSample,
    copied,
    generator,
    generators,
)
from vlcli.data.sampler import Batches, Order, Pick
from vlcli.data.sources import ConceptSource, LazyImage, check_shapes, check_sources
from vlcli.data.streams import first_below, made
from vlcli.data.transforms import Transform
from vlcli.data.transforms.words import mirrored_targets
from vlcli.data.vocabulary import Tokenizer
from vlcli.errors import DataError, VlcliError
from vlcli.features import FeatureStore, Record
from vlcli.images.shards import is_there
from vlcli.nn.batch import Batch
from vlcli.nn.model import Facts, Needs

FIELDS = ("scores", "classes", "class_scores", "attributes", "attribute_scores", "class_probs", "box_ids")
"""What is read of a store besides features and boxes, where it is there."""


REMEMBERED = 100_000
"""How many sentences a process keeps as ids; 100 MB of them, more are turned into ids each time."""


class Pipeline(Dataset[Sample]):
    """The examples of some data sets, loaded as a model needs them and corrupted as its objectives say.

    ``len`` is the examples an epoch has (readers' ``weight`` counted); :attr:`total` how many different ones there are.

    Args:
        readers: data sets; each one's ``weight`` is its passes in an epoch.
        needs: what the model is fed.
        tokenizer: for models that read text.
        facts: sizes the model is built with; the store must agree.
        store: region features.
        corruptions: of the objectives, in their order.
        seed: the run's seed.
        missing: what to do with examples whose image has no features (or no file, or a damaged one): ``error`` or
            ``drop``.
        length: longest text in pieces; None: ``facts.text_length``.
        concepts: visual concepts.
        transform: how pictures, with their boxes, label maps and sentences, become pixels; None squashes them.
        training: whether the transform is the one for training, drawn anew for each example and epoch.
        repeats: how many differently drawn copies of an example follow one another (repeated augmentation).
        multiple: text and region lengths are padded to a multiple of it.
        curriculum: which examples the first epochs draw from.

    Raises:
        DataError: an image is missing, the store does not fit, or nothing is left.
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        *,
        needs: Needs,
        tokenizer: Tokenizer | None = None,
        facts: Facts | None = None,
        store: FeatureStore | None = None,
        corruptions: Sequence[Corruption] = (),
        seed: int = 0,
        missing: str = "error",
        length: int | None = None,
        concepts: ConceptSource | None = None,
        transform: Transform | None = None,
        training: bool = False,
        repeats: int = 1,
        multiple: int = 1,
        curriculum: Sequence[Step] = (),
    ) -> None:
        self.readers, self.needs, self.tokenizer, self.store = list(readers), needs, tokenizer, store
        self.concepts, self.transform, self.seed, self.multiple = concepts, transform, seed, multiple
        self.missing = missing
        self.unreadable: dict[str, str] = {}
        self.augments = training and transform is not None and needs.pixels
        self.length = length or (facts.text_length if facts is not None else None)
        self.pad_id = tokenizer.ids["pad"] if tokenizer is not None else 0
        for corruption in corruptions:
            corruption.ready(tokenizer, self.length)
        self._by_view = _by_view(corruptions)
        check_sources(needs, tokenizer, store, concepts, facts)
        self._fields = tuple(name for name in FIELDS if store is not None and needs.regions and name in store.fields)
        self.pictures = Pictures(self.readers, needs, transform)
        self.examples: list[Example] = []
        self.starts: list[int] = [0]
        self.dropped_counts: dict[str, int] = {}
        self.reader_counts: dict[str, int] = {}
        for reader in self.readers:
            self._take(reader, missing)
        check_shapes(self.examples, needs, self._names(), self.dropped)
        counts = [stop - start for start, stop in zip(self.starts, self.starts[1:], strict=False)]
        easy = Curriculum(curriculum, self.examples, self._regions_of()) if curriculum else None
        self.order = Order(counts, [reader.weight for reader in self.readers], seed, repeats, easy)
        if not len(self.order):
            raise DataError("The data are empty: no example is left.", where=self._names(), got="0 examples an epoch")
        self._loaders: dict[Any, Loader] = {}
        self._texts: dict[tuple[str, str], TextSample] = {}
        self._lengths: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        """Examples in an epoch, weights counted."""
        return len(self.order)

    @property
    def total(self) -> int:
        """How many different examples there are."""
        return len(self.examples)

    @property
    def dropped(self) -> int:
        """Examples left out because an image was missing; ``dropped_counts`` says it by data set."""
        return sum(self.dropped_counts.values())

    def notes(self) -> list[str]:
        """A line on each sort of thing that was left out: by the readers, for want of a picture, as unreadable."""
        found = [line for reader in self.readers for line in reader.notes()]
        for label, count in self.dropped_counts.items():
            found += [f"{label}: left out {count} examples whose pictures are not there"] if count else []
        if self.unreadable:
            key, reason = next(iter(self.unreadable.items()))
            found.append(f"left out {len(self.unreadable)} examples with unreadable pictures; {key}: {reason}")
        return found

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Pieces of each example's text after cutting, specials included; 0 without text (computed once, on demand)."""
        if self._lengths is None:
            encoder = self.tokenizer
            texts = (example.text for example in self.examples)
            found = [
                0 if text is None or encoder is None else len(encoder.encode(text, "", self.length).ids)
                for text in texts
            ]
            self._lengths = np.array(found, np.int64)
        return self._lengths

    def only(self, examples: Sequence[Example]) -> Pipeline:
        """The same loading for other examples, each once: their images must be among those of its data sets."""
        made = copy(self)
        made.examples, made.starts = list(examples), [0, len(examples)]
        made.order = Order([len(examples)], [1.0], self.seed)
        made._loaders, made._lengths = {}, None
        return made

    def loader(
        self,
        batch_size: int,
        *,
        shuffle: bool = False,
        epoch: int = 0,
        start_batch: int = 0,
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
        drop_last: bool = False,
        context: str | None = None,
    ) -> Loader:
        """The batches of one epoch, from ``start_batch`` on. What they hold does not depend on ``workers``.

        Worker processes stay alive from one epoch's loader to the next.

        Args:
            batch_size: examples over all processes.
            shuffle: the epoch's own order and weights; else every example once in file order.
            epoch: 0-based; also decides what corruptions draw.
            start_batch: batches to pass over without loading them.
            rank: this process.
            world: number of processes.
            workers: processes that load; 0 loads in this one.
            drop_last: leave an epoch's smaller last batch out.
            context: how workers start: ``fork``, ``spawn`` or ``forkserver``; None: the platform's way.
        """
        if not 0 <= rank < world or batch_size < (world if shuffle else 1):
            raise ValueError(f"a batch of {batch_size} examples for process {rank} of {world}")
        batches = Batches(self.order, batch_size, shuffle, drop_last, epoch, start_batch, rank, world)
        kind = (workers, context)
        kept = self._loaders.get(kind)
        if kept is None or kept.busy:
            kept = self._loaders[kind] = Loader(self, batches, workers, context)
        kept.batches.__dict__.update(batches.__dict__)
        return kept

    def batch(self, codes: Sequence[int], epoch: int = 0) -> Batch:
        """The given examples as one batch."""
        return self._batch([(epoch, int(code)) for code in codes])

    def __getitem__(self, code: int) -> Sample:
        """One example as read, not corrupted."""
        cache: dict[str, ImageSample] = {}
        return self._sample(code % self.total, 0, self._key(code), lambda name: self._image(name, cache))

    def __getitems__(self, picks: list[Pick]) -> list[Batch | VlcliError]:
        """One whole batch, as DataLoader asks for it; a worker's fault is a value: exceptions lose their facts."""
        try:
            return [self._batch(picks)]
        except NothingReadableError as error:
            return [error]
        except VlcliError as error:
            if get_worker_info() is None:
                raise
            return [error]

    def __getstate__(self) -> dict[str, Any]:
        """Without the loaders and what is remembered, which belong to this process."""
        return {**self.__dict__, "_loaders": {}, "_texts": {}}

    def _batch(self, picks: list[Pick]) -> Batch:
        cache = self._read(picks)
        keys = [self._key(code) for _, code in picks]
        given = zip(picks, keys, self._states(picks, keys), strict=True)
        if self.missing != "drop":
            items = [self._item(*one, cache) for one in given]
            return collate(items, pad_id=self.pad_id, multiple=self.multiple)
        items, unreadable = self._readable(given, cache)
        if not items:
            raise NothingReadableError(unreadable)
        batch = collate(items, pad_id=self.pad_id, multiple=self.multiple)
        batch.unreadable = unreadable
        return batch

    def _read(self, picks: list[Pick]) -> dict[str, ImageSample]:
        """The pictures of a batch, where all that is needed of them are regions: read at once."""
        needs = self.needs
        if self.store is None or self.augments or not needs.regions or needs.pixels or needs.concepts:
            return {}
        names = dict.fromkeys(name for _, code in picks for name in self.examples[code % self.total].images)
        return RegionTable(self.store, list(names), self._fields, self.multiple).images() if names else {}

    def _states(self, picks: list[Pick], keys: list[str]) -> NDArray[np.uint64]:
        """What the generators of each example start from (B, corruptions + 1, 4): the last numbers the example."""
        names = [corruption.name for acting in self._by_view.values() for corruption in acting]
        return generators(self.seed, [epoch for epoch, _ in picks], keys, [*names, ""])

    def _readable(
        self, given: Iterable[tuple[Pick, str, NDArray[np.uint64]]], cache: dict[str, ImageSample]
    ) -> tuple[list[Item], dict[str, str]]:
        """The items whose pictures can be read, and why the others cannot."""
        items, unreadable = [], {}
        for pick, key, states in given:
            try:
                items.append(self._item(pick, key, states, cache))
            except PictureError as error:
                unreadable[f"{self.examples[pick[1] % self.total].key}"] = f"{error.where}: {error.got or error.what}"
        return items, unreadable

    def _item(self, pick: Pick, key: str, states: NDArray[np.uint64], cache: dict[str, ImageSample]) -> Item:
        (epoch, code), number = pick, 0
        index = code % self.total
        clean = self._sample(index, epoch, key, lambda name: self._image(name, cache))
        views = {CLEAN: clean}
        for name, corruptions in self._by_view.items():
            for corruption in corruptions:
                if corruption.acts(epoch):
                    view = views.get(name) or views.setdefault(name, clean.fork())
                    rng = made(states[number])
                    corruption(view, rng, self._donor(index, epoch, rng))
                number += 1
        return Item(views, first_below(states[-1], 2**63 - 1))

    def _key(self, code: int) -> str:
        """What randomness of an example is keyed on: its data set, its id, and its repetition within the epoch."""
        turn, index = divmod(code, self.total)
        reader = self._reader_of(index)
        return f"{reader}/{self.examples[index].key}" + (f"#{turn}" if turn else "")

    def _reader_of(self, index: int) -> int:
        return bisect_right(self.starts, index) - 1

    def _donor(self, index: int, epoch: int, rng: np.random.Generator) -> Donor:
        return partial(self._drawn, index, epoch, rng)

    def _drawn(self, index: int, epoch: int, rng: np.random.Generator) -> Sample:
        """A donor: another example of the same data set, evenly drawn."""
        reader = self._reader_of(index)
        start, stop = self.starts[reader], self.starts[reader + 1]
        other = index
        if stop - start > 1:  # uniform over all but the example itself
            other = start + int(rng.integers(stop - start - 1))
            other += other >= index
        return self._sample(other, epoch, self._key(other), self._lazy_image)

    def _sample(self, index: int, epoch: int, key: str, image_of: Callable[[str], ImageSample]) -> Sample:
        example = self.examples[index]
        text, text_key = example.text, example.text_key
        if example.choices and text is not None:
            options = [text, *example.choices]
            number = int(generator(self.seed, epoch, key, "caption").integers(len(options)))
            text, text_key = options[number], f"{text_key or example.key}#{number}"
        loads = self.needs.regions or self.needs.pixels or self.needs.concepts
        if not self.augments:
            images = [image_of(name) for name in example.images] if loads else []
            return Sample(example.key, self._text(text, text_key), images, example.targets)
        draw = Draw(generator(self.seed, epoch, key, "transform"), text, len(example.images))
        images = [self._load(name, draw) for name in example.images]
        targets = mirrored_targets(example.targets) if draw.flipped else example.targets
        return Sample(example.key, self._text(draw.text, text_key), images, targets)

    def _text(self, text: str | None, key: str) -> TextSample | None:
        if text is None or self.tokenizer is None or not self.needs.text:
            return None
        known = self._texts.get((text, key))
        if known is None:
            known = self.tokenizer.encode(text, key, self.length)
            if len(self._texts) < REMEMBERED:
                self._texts[text, key] = known
        return copied(known)

    def _image(self, name: str, cache: dict[str, ImageSample]) -> ImageSample:
        """An image, loaded once a batch."""
        if name not in cache:
            cache[name] = self._load(name)
        return cache[name]

    def _lazy_image(self, name: str) -> ImageSample:
        return LazyImage(name, lambda: self._load(name))

    def _load(self, name: str, draw: Draw | None = None) -> ImageSample:
        image = ImageSample(name, (0, 0))
        if self.needs.regions:
            assert self.store is not None
            fill_regions(image, self.store.read(name, self._fields, copy=False))
        if self.needs.pixels:
            self.pictures.fill(image, draw)
        if self.needs.concepts and self.concepts is not None:
            image.concepts = self.concepts.read(name)
        return image

    def _take(self, reader: Reader, missing: str) -> None:
        """Add a reader's examples, those whose images are there."""
        if self.tokenizer is not None and self.length is not None:
            reader.fit(self.tokenizer, self.length)
        examples = reader.examples()
        names = dict.fromkeys(name for example in examples for name in example.images)
        absent = self._absent(list(names))
        if absent and missing != "drop":
            raise self._missing(reader, absent, len(names))
        kept = [example for example in examples if absent.isdisjoint(example.images)] if absent else examples
        label = reader.label
        while label in self.reader_counts:
            label += "'"
        self.reader_counts[label], self.dropped_counts[label] = len(kept), len(examples) - len(kept)
        self.examples += kept
        self.starts.append(len(self.examples))

    def _absent(self, names: list[str]) -> set[str]:
        absent: set[str] = set()
        if self.needs.regions and self.store is not None:
            absent.update(self.store.missing(names))
        if self.needs.pixels:
            absent.update(name for name in names if name not in absent and not is_there(self.pictures.files[name]))
        if self.needs.concepts and self.concepts is not None:
            absent.update(name for name in names if name not in self.concepts)
        return absent

    def _missing(self, reader: Reader, absent: set[str], total: int) -> DataError:
        first = min(absent)
        known = "" if self.store is None else self.store.where
        from_store = bool(self.needs.regions and self.store is not None and self.store.missing([first]))
        place = f"the feature store {known}" if from_store else str(self.pictures.files.get(first, "concepts"))
        action = self.store.hint if from_store and self.store is not None else "check `root` and `images`"
        return DataError(
            f"{len(absent)} of {total} images of {reader.label} are missing, the first is {first!r}.",
            where=place,
            got=", ".join(sorted(absent)[:3]) + (", ..." if len(absent) > 3 else ""),
            expected="features for every image the data name"
            if from_store
            else "a picture for every image the data name",
            hint=f"{action}; or leave these examples out: missing=drop",
        )

    def _regions_of(self) -> Callable[[str], int] | None:
        """The number of regions of a picture, where the model reads regions."""
        return self.store.count if self.needs.regions and self.store is not None else None

    def _names(self) -> str:
        return ", ".join(reader.label for reader in self.readers)


def _by_view(corruptions: Sequence[Corruption]) -> dict[str, list[Corruption]]:
    """Corruptions by view, each view's in the order of phases."""
    views: dict[str, list[Corruption]] = {}
    for corruption in corruptions:
        views.setdefault(corruption.view, []).append(corruption)
    return {view: sorted(found, key=lambda one: PHASES.index(one.phase)) for view, found in views.items()}


def fill_regions(image: ImageSample, record: Record) -> None:
    """A stored record's regions, their boxes as shares of the image, and what is known of each."""
    image.size, image.features = record.size, record.features
    image.boxes = normalised(record.boxes, record.size)
    scores = record.class_scores if record.class_scores is not None else record.scores
    found = {
        "classes": record.classes,
        "class_scores": scores,
        "attributes": record.attributes,
        "attribute_scores": record.attribute_scores,
        "class_probs": record.class_probs,
    }
    image.fields = {name: array for name, array in found.items() if array is not None}
    image.box_ids = None if record.box_ids is None else [str(name) for name in record.box_ids]
