"""Turns readers into batches for a model and its objectives, equal for any number of workers and after a resume."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, get_worker_info

from vlcli.data.collate import Item, collate
from vlcli.data.dataset import CorruptionStep, Examples
from vlcli.data.images import PictureError
from vlcli.data.inputs import NOTHING_LEFT, Images, Sentences, check_shapes, check_sources
from vlcli.data.loader import BatchLoader, NothingReadableError
from vlcli.data.pictures import Pictures
from vlcli.data.reader import Reader
from vlcli.data.sample import Corruption, Example, Sample
from vlcli.data.sampler import Batches, Curriculum, Order, Pick
from vlcli.data.streams import first_below
from vlcli.data.transforms import Transform
from vlcli.data.vocabulary import Tokenizer
from vlcli.errors import DataError, VlcliError
from vlcli.features import FeatureStore
from vlcli.features.concepts import ConceptStore
from vlcli.images.files import conversion_notes, spread
from vlcli.nn.batch import Batch
from vlcli.nn.model import DataSpec, InputSpec
from vlcli.recipe.schema import CurriculumStep


class Pipeline(Dataset[Sample]):
    """The examples of some data sets, loaded as a model needs them and corrupted as its objectives say.

    ``len`` is the examples an epoch has (readers' ``weight`` counted); :attr:`total` how many different ones there are.

    Args:
        readers: data sets; each one's ``weight`` is its passes in an epoch.
        needs: what the model is fed.
        tokenizer: for models that read text.
        data_spec: sizes the model is built with; the store must agree.
        store: region features.
        corruptions: of the objectives, in their order.
        missing: ``error`` or ``drop``, for examples whose image has no features (or no file, or a damaged one).
        length: longest text in pieces; None: ``data_spec.text_length``.
        transform: how pictures, with their boxes, label maps and sentences, become pixels; None squashes them.
        training: whether the transform is the one for training, drawn anew for each example and epoch.
        repeats: how many differently drawn copies of an example follow one another (repeated augmentation).
        multiple: text and region lengths are padded to a multiple of it.
        curriculum: which examples the first epochs draw from.
        group: ``image``: an epoch has the examples of a picture one after another, so that a batch loads and encodes
            the picture once.

    Attributes:
        examples: the different ones, in file order.
        pictures: files of the examples' pictures, and how they become pixels.
        reader_counts: examples kept, by data set.
        dropped_counts: examples left out because an image was missing, by data set; ``dropped`` is their sum.

    Raises:
        DataError: an image is missing, the store does not fit, or nothing is left.
    """

    examples: Sequence[Example]
    total: int
    readers: list[Reader]
    tokenizer: Tokenizer | None
    length: int | None
    store: FeatureStore | None
    pictures: Pictures
    reader_counts: dict[str, int]
    dropped_counts: dict[str, int]
    dropped: int

    def __init__(
        self,
        readers: Sequence[Reader],
        *,
        needs: InputSpec,
        tokenizer: Tokenizer | None = None,
        data_spec: DataSpec | None = None,
        store: FeatureStore | None = None,
        corruptions: Sequence[Corruption] = (),
        seed: int = 0,
        missing: str = "error",
        length: int | None = None,
        concepts: ConceptStore | None = None,
        transform: Transform | None = None,
        training: bool = False,
        repeats: int = 1,
        multiple: int = 1,
        curriculum: Sequence[CurriculumStep] = (),
        group: Literal["image"] | None = None,
    ) -> None:
        self.needs, self.seed, self.multiple, self.missing = needs, seed, multiple, missing
        self.readers, self.tokenizer, self.store = list(readers), tokenizer, store
        self.unreadable: dict[str, str] = {}
        self.length = length = length or (data_spec.text_length if data_spec is not None else None)
        self.pad_id = tokenizer.ids["pad"] if tokenizer is not None else 0
        self.corruption = CorruptionStep(corruptions, tokenizer, length, seed)
        check_sources(needs, tokenizer, store, concepts, data_spec)
        images = Images(self.readers, needs, store, concepts, transform)
        augments = training and transform is not None and needs.pixels
        # A thread that draws from the global generators would change the model's dropout, which draws from them too.
        self._borrows_generators = augments and transform is not None and transform.borrows_generators
        sentences = Sentences(tokenizer, needs.text, length)
        self.dataset = Examples(self.readers, sentences, images, seed=seed, missing=missing, augments=augments)
        self.examples, self.total = self.dataset.all, len(self.dataset.all)
        self.pictures, self.reader_counts = images.pictures, self.dataset.reader_counts
        self.dropped_counts = self.dataset.dropped_counts
        self.dropped = sum(self.dropped_counts.values())
        names = ", ".join(reader.label for reader in self.readers)
        check_shapes(self.examples, needs, names, self.dropped)
        regions_of = store.count if store is not None and needs.regions else None
        easy = Curriculum(curriculum, self.examples, regions_of) if curriculum else None
        groups, known = None, dict[tuple[str, ...], int]()
        if group:
            groups = np.array([known.setdefault(tuple(one.images), len(known)) for one in self.examples], np.int64)
        weights = [reader.weight for reader in self.readers]
        self.order = Order(list(self.reader_counts.values()), weights, seed, repeats, easy, groups)
        if not len(self.order):
            raise DataError(NOTHING_LEFT, where=names, got="0 examples an epoch")
        self._loaders: dict[Any, BatchLoader] = {}
        self._lengths: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.order)

    def notes(self) -> list[str]:
        """Return a line for each reason why examples were left out: by a reader, picture missing or unreadable."""
        lines = [line for reader in self.readers for line in reader.notes()]
        dropped = [(label, count) for label, count in self.dropped_counts.items() if count]
        lines += [f"{label}: left out {count} examples whose pictures are not there" for label, count in dropped]
        if self.needs.pixels:
            names = dict.fromkeys(name for row in spread(len(self.examples)) for name in self.examples[row].images)
            lines += conversion_notes([self.pictures.files[name] for name in names])
        if self.unreadable:
            key, reason = next(iter(self.unreadable.items()))
            lines.append(f"left out {len(self.unreadable)} examples with unreadable pictures; {key}: {reason}")
        return lines

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Pieces of each example's text after cutting, specials included; 0 without text (computed once, on demand)."""
        if self._lengths is None:
            count = self.dataset.sentences.count
            self._lengths = np.array([count(example.text) for example in self.examples], np.int64)
        return self._lengths

    def only(self, examples: Sequence[Example]) -> Pipeline:
        """Return a copy for other examples, each once: their images must be among those of its data sets."""
        other = copy(self)
        other.dataset = self.dataset.only(examples)
        other.examples, other.total = other.dataset.all, len(examples)
        other.order = Order([len(examples)], [1.0], self.seed)
        other._loaders, other._lengths = {}, None
        return other

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
        stride: int = 1,
    ) -> BatchLoader:
        """Return the batches of one epoch, from ``start_batch`` on. Their content does not depend on ``workers``.

        Worker processes stay alive from one epoch's loader to the next.

        Args:
            batch_size: examples over all processes.
            shuffle: the epoch's own order and weights; else every example once in file order.
            epoch: 0-based; also seeds the corruptions.
            workers: processes that load; 0 loads in this one.
            drop_last: leave an epoch's smaller last batch out.
            context: how workers start: ``fork``, ``spawn`` or ``forkserver``; None: the platform's way.
            stride: every so many batches, from ``start_batch`` on (processes that evaluate take whole batches in turn).
        """
        if not 0 <= rank < world or batch_size < (world if shuffle else 1):
            raise ValueError(f"a batch of {batch_size} examples for process {rank} of {world}")
        batches = Batches(self.order, batch_size, shuffle, drop_last, epoch, start_batch, rank, world, stride)
        loader = self._loaders.get((workers, context))
        if loader is None or loader.busy:
            # A copy without loaders: in a cycle, workers would be told to stop too late and be waited for in vain.
            loader = BatchLoader(copy(self), self.unreadable, workers, context, threaded=not self._borrows_generators)
            self._loaders[workers, context] = loader
        return loader.over(batches)

    def batch(self, codes: Sequence[int], epoch: int = 0) -> Batch:
        return self._batch([(epoch, int(code)) for code in codes])

    def __getitem__(self, code: int) -> Sample:
        """Return one example as read, not corrupted."""
        return self.dataset.sample(code % self.total, 0, self.dataset.key(code), cache(self.dataset.images.load))

    def __getitems__(self, picks: list[Pick]) -> list[Batch | VlcliError]:
        """Return one whole batch for DataLoader; a worker's error is a value, since pickling would lose its fields."""
        try:
            return [self._batch(picks)]
        except VlcliError as error:
            if get_worker_info() is None and not isinstance(error, NothingReadableError):
                raise
            return [error]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaders": {}}  # they belong to this process

    def _batch(self, picks: list[Pick]) -> Batch:
        texts = self.dataset.read_together([code for _, code in picks])
        names = (name for _, code in picks for name in self.examples[code % self.total].images)
        images = self.dataset.images
        read = {} if self.dataset.augments else images.read_together(names, self.multiple)
        image_of = cache(lambda name: read.get(name) or images.load(name))
        keys = [self.dataset.key(code) for _, code in picks]
        states = self.corruption.states(picks, keys)
        items, unreadable = [], {}
        seeds = first_below(states[:, -1], 2**63 - 1).tolist()
        for (epoch, code), key, row, seed in zip(picks, keys, states, seeds, strict=True):
            index = code % self.total
            try:
                clean = self.dataset.sample(index, epoch, key, image_of, texts)
                donor = partial(self.dataset.draw_donor, index, epoch)
                items.append(Item(self.corruption.views(clean, epoch, row, donor), seed))
            except PictureError as error:
                if self.missing != "drop":
                    raise
                unreadable[self.examples[index].key] = f"{error.where}: {error.got or error.what}"
        if unreadable and not items:
            raise NothingReadableError(unreadable)
        batch = collate(items, pad_id=self.pad_id, multiple=self.multiple)
        batch.unreadable = unreadable
        return batch
