"""Batches: unique texts, unique images, and the rows of both that each example has.

A caption of two pictures is encoded once, and so is a picture with five captions. Every mask is True at real values.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, cast

import torch
from torch import Tensor

from vlcli.errors import DataError


@dataclass
class Tensors:
    """A record of tensors (and plain values) that moves and selects as one."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Apply ``change`` to every tensor, nested records included; records that share an object still do after it."""
        return cast("Self", exchanged(self, Tensor, change))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        return self.map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        return self.map(lambda tensor: tensor.pin_memory())

    def select(self, rows: Tensor) -> Self:
        """Select rows of every tensor and list: ``rows`` (K,) of integers, repeats allowed."""

        def selected(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.index_select(0, rows.to(value.device))
            if isinstance(value, list):
                return [value[row] for row in rows.tolist()]
            return value.select(rows) if isinstance(value, Tensors) else value

        return replace(self, **{name: selected(value) for name, value in self._items().items()})

    def _items(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}


def exchanged(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Apply ``change`` to everything of type ``kind`` in a record or a dictionary of records, once for each object."""
    done: dict[int, Any] = {}  # the originals outlive this call, so an id stands for one object

    def exchange(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: exchange(item) for name, item in value.items()}
        if isinstance(value, Tensors) and id(value) not in done:
            done[id(value)] = replace(value, **exchange(value._items()))
        elif isinstance(value, kind) and id(value) not in done:
            done[id(value)] = change(value)
        return done.get(id(value), value)

    return exchange(value)


@dataclass
class Text(Tensors):
    """N texts of at most T pieces.

    Attributes:
        ids: (N, T) vocabulary ids, special tokens included, padded with the pad id.
        mask: (N, T) bool, True at real tokens.
        special: (N, T) bool, True at [CLS], [SEP] and the like, not at padding.
        words: (N, T) number of the whitespace word of a piece; -1 at special tokens and padding.
        segments: (N, T) segment ids; None: one segment.
        positions: (N, T) position ids; None: 0, 1, 2 ...
        causal: (N,) bool, True: no piece attends to a later one; None: none of the texts is causal.
        keys: N text ids; a sentence has one.
        raw: N strings as read.
    """

    ids: Tensor
    mask: Tensor
    special: Tensor
    words: Tensor
    segments: Tensor | None = None
    positions: Tensor | None = None
    causal: Tensor | None = None
    keys: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def beginnings(self) -> Tensor | None:
        """Return the pieces (N, K) that generation goes on from, special ones left out; None where there are none.

        Raises:
            DataError: the texts are not equally long.
        """
        real = self.mask & ~self.special
        lengths = real.sum(1).unique().tolist()
        if len(lengths) > 1:
            what, hint = "Texts that go on together must be equally long.", "generate those of each length apart"
            raise DataError(what, got=f"lengths {lengths}", hint=hint)
        return self.ids[real].unflatten(0, (len(real), -1)) if any(lengths) else None


@dataclass
class Regions(Tensors):
    """M images as at most R regions (boxes or grid cells) of D-dimensional features.

    Attributes:
        features: (M, R, D) float.
        boxes: (M, R, 4) x1, y1, x2, y2 divided by width and height, in [0, 1].
        mask: (M, R) bool, True at real regions.
        sizes: (M, 2) height and width of the image in pixels.
        classes: (M, R) detected class, 0-based without background; -1: unknown.
        class_scores: (M, R) its confidence; 0: unknown.
        attributes: (M, R) detected attribute; -1: unknown.
        attribute_scores: (M, R) its confidence.
        class_probs: (M, R, C) class probabilities, if the store holds them.
        box_ids: M lists of R annotation ids, if the store holds them.
    """

    features: Tensor
    boxes: Tensor
    mask: Tensor
    sizes: Tensor
    classes: Tensor | None = None
    class_scores: Tensor | None = None
    attributes: Tensor | None = None
    attribute_scores: Tensor | None = None
    class_probs: Tensor | None = None
    box_ids: list[list[str]] | None = None

    def __len__(self) -> int:
        return len(self.features)


@dataclass
class Pixels(Tensors):
    """M images as pixels.

    Attributes:
        images: (M, 3, H, W) normalised as the model's ``InputSpec`` says.
        sizes: (M, 2) height and width of the original, in pixels.
        mask: (M, H, W) bool, True at real pixels; None: no padding.
        boxes: (M, R, 4) boxes divided by width and height; None: no task reads boxes.
        box_mask: (M, R) bool, True at real boxes.
        classes: (M, R) label of each box; -1: unknown.
        attributes: (M, R) attribute label of each box; -1: unknown.
        label_map: (M, H, W) class of each pixel, -1 at padding; None: no task reads it.
    """

    images: Tensor
    sizes: Tensor
    mask: Tensor | None = None
    boxes: Tensor | None = None
    box_mask: Tensor | None = None
    classes: Tensor | None = None
    attributes: Tensor | None = None
    label_map: Tensor | None = None

    def __len__(self) -> int:
        return len(self.images)


@dataclass
class Concepts(Tensors):
    """K visual concepts per image, best first: ``ids``, ``scores`` and ``ranks`` from 0, (M, K), with a bool ``mask``.

    ``hidden`` (M, K) bool is True where the concept's word is masked; None: no word is.
    """

    ids: Tensor
    scores: Tensor
    ranks: Tensor
    mask: Tensor
    hidden: Tensor | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass
class Images(Tensors):
    """M unique images in the forms that the model's ``InputSpec`` names.

    Attributes:
        keys: M image ids.
        hidden: (M, cells) bool, patches in row-major order that are replaced by ``blank``; None: no patch is.
        blank: (M, D) embedding of a hidden patch (see :func:`vlcli.nn.embeddings.hide`).
    """

    keys: list[str] = field(default_factory=list)
    regions: Regions | None = None
    pixels: Pixels | None = None
    concepts: Concepts | None = None
    hidden: Tensor | None = None
    blank: Tensor | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def pixels_for(self, model: str) -> Tensor:
        """Return the pixels (M, 3, H, W), or raise DataError for the model of that name if the data have none."""
        if self.pixels is None:
            raise DataError("The model reads pixels, and the data give none.", where=f"model {model}")
        return self.pixels.images

    def regions_for(self, model: str) -> Regions:
        """Return the regions, or raise DataError for the model of that name if the data have none."""
        if self.regions is None:
            what, hint = "The model reads region features, and the batch has none.", "name a store in `features`"
            raise DataError(what, where=f"model {model}", hint=hint)
        return self.regions


@dataclass
class View(Tensors):
    """Samples that are ``clean`` or corrupted by the objectives that share a view's name.

    Attributes:
        text: unique texts; None for data without texts.
        images: unique images; None for data without images.
        text_rows: (B,) the text row of each example; -1: it has none.
        image_rows: (B, K) the image rows of each example (two for NLVR2, five for a story).
        aligned: example i has text row i and image row i, so that no rows have to be selected.
        mask_labels: of corruptions, by name: of pieces (N, T), regions (M, R) or examples (B,).
    """

    text: Text | None
    images: Images | None
    text_rows: Tensor
    image_rows: Tensor
    aligned: bool = False
    mask_labels: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Batch(Tensors):
    """B examples.

    Attributes:
        views: by name, always with ``clean``; equal views share their tensors.
        targets: by name; tensors (B, ...) if examples agree in shape, else lists of B items.
        keys: B example ids.
        seeds: (B,) int64, random seeds of (seed, epoch, example), for objectives that sample in the step.
        unreadable: keys of examples that were left out, with the reason why an image cannot be read.
    """

    views: dict[str, View]
    targets: dict[str, Any]
    keys: list[str]
    seeds: Tensor
    unreadable: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def clean(self) -> View:
        return self.views["clean"]
