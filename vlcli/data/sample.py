"""Defines an example as read and as loaded, and the corruptions that change it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from vlcli.data.streams import seed_states

Phase = Literal["sentence", "tokens", "regions", "pixels"]
"""When a corruption acts on an example; see :data:`PHASES`."""
PHASES: tuple[Phase, ...] = ("sentence", "tokens", "regions", "pixels")
"""Corruptions run in this order, so that words are masked in the sentence that is finally used."""


@dataclass(slots=True)  # pre-training data have millions
class Example:
    """An example as a reader returns it: strings and ids, nothing loaded.

    Attributes:
        key: the example's id in its data set.
        text: the sentence, or None.
        images: image ids, none for text-only data, two for NLVR2, five for a story.
        text_key: id of the sentence; equal ids are encoded once. Empty: the sentence itself.
        targets: labels by name (``label`` an int; ``answers`` a mapping answer -> score; ``kind`` a string ...).
        choices: further sentences; ``text`` or one of them is drawn anew each epoch.
    """

    key: str
    text: str | None = None
    images: list[str] = field(default_factory=list)
    text_key: str = ""
    targets: dict[str, Any] = field(default_factory=dict)
    choices: list[str] = field(default_factory=list)


@dataclass
class TextSample:
    """A tokenised sentence.

    Attributes:
        raw: as read.
        ids: vocabulary ids with specials.
        special: True at specials.
        words: index of the whitespace word of each piece; -1 at specials.
        causal: whether no piece may see a later one.
    """

    key: str
    raw: str
    ids: list[int]
    special: list[bool]
    words: list[int]
    causal: bool = False


@dataclass
class ImageSample:
    """One image, loaded in the forms the model needs. Arrays are shared between views: replace, never write into them.

    Attributes:
        size: height and width in pixels.
        features: (R, D) or None.
        boxes: (R, 4) divided by width and height, or None.
        fields: more arrays along R: ``classes``, ``class_scores``, ``attributes``, ``attribute_scores``,
            ``class_probs``.
        box_ids: R ids.
        pixels: (3, H, W) float32 normalised, or None.
        label_map: (H, W) int32 class ids of the pixels, or None.
        concepts: ``ids``, ``scores`` arrays along K; ``hidden`` where a corruption masked some.
        row: the table its regions were read into and the row there, so that a batch need not be padded again.
    """

    key: str
    size: tuple[int, int]
    features: NDArray[Any] | None = None
    boxes: NDArray[np.float32] | None = None
    fields: dict[str, NDArray[Any]] = field(default_factory=dict)
    box_ids: list[str] | None = None
    pixels: NDArray[np.float32] | None = None
    label_map: NDArray[np.int32] | None = None
    concepts: dict[str, NDArray[Any]] = field(default_factory=dict)
    row: tuple[Any, int] | None = field(default=None, repr=False, compare=False)


@dataclass
class MaskLabels:
    """Labels that a corruption leaves for its objective, by the axis they run along.

    Attributes:
        text: per piece: sequences as long as ``ids``; padded with -1.
        regions: per region of the first image: arrays (R, ...); padded with 0.
        example: one value an example.
    """

    text: dict[str, Any] = field(default_factory=dict)
    regions: dict[str, Any] = field(default_factory=dict)
    example: dict[str, Any] = field(default_factory=dict)


@dataclass
class Sample:
    """One loaded example: ``targets`` are labels by name, ``mask_labels`` is filled by corruptions."""

    key: str
    text: TextSample | None
    images: list[ImageSample]
    targets: dict[str, Any]
    mask_labels: MaskLabels = field(default_factory=MaskLabels)

    def fork(self) -> Sample:
        text = None if self.text is None else copied(self.text)
        return Sample(self.key, text, [copied(image) for image in self.images], dict(self.targets), MaskLabels())


T = TypeVar("T")


def copied(record: T, **changes: Any) -> T:
    """Return a shallow copy with some parts replaced: ``dataclasses.replace`` in a tenth of its time."""
    copy: T = object.__new__(type(record))
    copy.__dict__.update(record.__dict__, **changes)
    return copy


Donor = Callable[[], Sample]
"""Gives another sample of the same data set, drawn anew with the corruption's own generator."""


class Corruption:
    """How one objective changes a sample before it is batched; small and picklable, it runs in loader workers.

    Attributes:
        name: the objective's name: part of the generator's key.
        view: the view it belongs to; corruptions of one view act on one copy.
        from_epoch: the first epoch it acts in: that of its objective.
        until_epoch: the first epoch without it; None: to the end.
    """

    name: str = ""
    view: str = "corrupted"
    from_epoch: int = 0
    until_epoch: int | None = None
    phase: Phase = "tokens"

    def acts(self, epoch: int) -> bool:
        """Whether its objective counts in this epoch: one that does not must not change the others' samples."""
        return epoch >= self.from_epoch and (self.until_epoch is None or epoch < self.until_epoch)

    def ready(self, tokenizer: Any, length: int | None) -> None:
        """Receive the tokenizer, once, before the first example; most corruptions do not need it.

        Args:
            tokenizer: a :class:`vlcli.data.vocabulary.Tokenizer`, or None where no text is read.
            length: longest text in pieces, specials included; None: no limit.
        """

    def __call__(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> None:
        """Change ``sample`` (a fork) by replacing its parts, and fill its ``mask_labels``."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it corrupts {sample.key!r}")


def generator(seed: int, epoch: int, key: str, name: str) -> np.random.Generator:
    """Return the generator of one (seed, epoch, example, objective): workers and a resume do not change its draws."""
    words = [seed & 0xFFFFFFFF, epoch, zlib.crc32(key.encode()), len(key), zlib.crc32(name.encode())]
    return np.random.default_rng(words)


def generators(seed: int, epoch: int | Sequence[int], keys: Sequence[str], names: Sequence[str]) -> NDArray[np.uint64]:
    """Return the states (K, N, 4) of :func:`generator` for K keys of examples and N names of objectives."""
    words = np.empty((len(keys), len(names), 5), np.uint32)
    words[..., 0] = seed & 0xFFFFFFFF
    words[..., 1] = np.broadcast_to(epoch, len(keys))[:, None]
    words[..., 2] = np.array([zlib.crc32(key.encode()) for key in keys], np.uint32)[:, None]
    words[..., 3] = np.array(list(map(len, keys)), np.uint32)[:, None]
    words[..., 4] = [zlib.crc32(name.encode()) for name in names]
    return seed_states(words.reshape(-1, 5)).reshape(len(keys), len(names), 4)
