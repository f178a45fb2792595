"""Base class of extractors: images, with given boxes or none, to records of region features.

An extractor prepares one image at a time in worker processes (a picklable :class:`Preparation`, which holds no weights)
and extracts from a batch of prepared images on the device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from vlcli.features.schema import DEFAULT_SET, Record
from vlcli.images.boxes import BoxList
from vlcli.images.labels import Labels
from vlcli.version import __version__

OWN = ("none", "cells")  # What a preparation says of boxes where the extractor's network decides on the regions


@dataclass
class Prepared:
    """One image on its way to the device.

    Attributes:
        pixels: the resized image (3, h, w): uint8 RGB, or what the extractor's own preparation makes.
        size: height and width of the original in pixels.
        scale: (x, y) factors from original to resized pixels.
        boxes: regions in original pixels, None where the extractor proposes them.
        id: the image; filled in by the extraction.
        record: its regions, for an extractor that reads them instead of pixels.
    """

    pixels: Tensor
    size: tuple[int, int]
    scale: tuple[float, float]
    boxes: BoxList | None = None
    id: str = ""
    record: Record | None = None

    def pin_memory(self) -> Prepared:
        """Return the image with pixels in page-locked memory."""
        return replace(self, pixels=self.pixels.pin_memory())

    def scaled_boxes(self) -> Tensor:
        """Return the boxes in resized pixels (N, 4), float32."""
        if self.boxes is None:
            return torch.zeros(0, 4)
        x, y = self.scale
        return torch.from_numpy(self.boxes.boxes.astype(np.float32)) * torch.tensor([x, y, x, y])


@dataclass
class Preparation:
    """Resizes a decoded image: shorter side to ``short``, longer at most ``long``.

    Attributes:
        short: pixels of the shorter side; 0 keeps the original size.
        long: most pixels of the longer side; 0 for no limit.
        boxes: where regions come from: ``given``, ``grid``, ``given-or-grid``, ``cells`` (those of the extractor's
            feature map) or ``none`` (the extractor's own).
        grid: rows and columns of a grid of boxes that tile the image.
        limit: most boxes of an image, by score; None for all.
        multiple: sides are rounded up to a multiple of this (patches of a transformer).
        square: stretch to ``short`` by ``short`` instead (transformers with a fixed grid).
    """

    short: int = 600
    long: int = 1000
    boxes: str = "given"
    grid: tuple[int, int] = (6, 6)
    limit: int | None = None
    multiple: int = 1
    square: bool = False

    def input_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return height and width after resizing an image of ``size``."""
        if self.square and self.short:
            return self.short, self.short
        height, width = size
        factor = self.short / min(size) if self.short else 1.0
        if self.long and max(size) * factor > self.long:
            factor = self.long / max(size)

        def side(pixels: int) -> int:
            return max(1, -(-max(1, round(pixels * factor)) // self.multiple)) * self.multiple

        return side(height), side(width)

    def __call__(self, image: Image.Image, boxes: BoxList | None) -> Prepared:
        width, height = image.size
        size = (height, width)
        target = self.input_size(size)
        if target != size:
            image = image.resize((target[1], target[0]), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1).contiguous()  # (3, h, w)
        return Prepared(pixels, size, (target[1] / width, target[0] / height), self._regions(size, boxes))

    def _regions(self, size: tuple[int, int], boxes: BoxList | None) -> BoxList | None:
        if self.boxes in OWN:
            return None
        if self.boxes == "grid" or (boxes is None and self.boxes == "given-or-grid"):
            return grid_boxes(size, self.grid)
        if boxes is None:
            raise ValueError("no boxes are given for this image")
        if boxes.size is not None and tuple(boxes.size) != size:
            theirs, ours = (f"{s[1]} x {s[0]}" for s in (boxes.size, size))
            raise ValueError(f"its boxes were measured in an image of {theirs} pixels, the file has {ours}")
        return boxes.clipped(size).with_area().top(self.limit)


def grid_boxes(size: tuple[int, int], grid: tuple[int, int]) -> BoxList:
    """Return boxes that tile an image of ``size`` (height, width) in rows and columns, row by row."""
    rows, columns = grid
    y = np.linspace(0, size[0], rows + 1, dtype=np.float32)
    x = np.linspace(0, size[1], columns + 1, dtype=np.float32)
    tiles = [[x[j], y[i], x[j + 1], y[i + 1]] for i in range(rows) for j in range(columns)]
    return BoxList(np.array(tiles, dtype=np.float32).reshape(-1, 4), size=size)


@dataclass(frozen=True)
class Network:
    """A network and a checkpoint's tensors for it.

    Attributes:
        module: the network.
        tensors: by the module's names.
        unneeded: patterns (``fnmatch``) of tensors that have no place in it and need none.
    """

    module: nn.Module
    tensors: Mapping[str, Tensor]
    unneeded: Sequence[str] = ()


class Extractor(ABC):
    """Base of every extractor.

    Attributes:
        dim: width D of the features.
        trained_on: what its weights learned from; ``untrained`` for random ones.
        preparation: what worker processes do to an image.
        device: where it runs.
        batch_size: images at a time that suit it, where the recipe does not say.
        weights_help: one line on where to get its weights, for whoever has none.
    """

    paper: ClassVar[str] = ""
    weights_help: ClassVar[str] = ""
    # Whether it is given pictures, or the regions that another extraction stored (``features`` of the stage)
    reads: Literal["pixels", "regions"] = "pixels"
    set: ClassVar[str] = DEFAULT_SET  # The box set it writes
    dim: int
    trained_on: str = "untrained"
    preparation: Preparation
    device: torch.device = torch.device("cpu")
    batch_size: int = 8

    @classmethod  # noqa: B027 (a hook, not a duty)
    def rehearse(cls, parameters: Mapping[str, Any]) -> None:
        """Check parameters before a recipe runs.

        Called on the meta device, without weights. Nothing is checked by default.

        Args:
            parameters: all of the extractor's parameters; what the recipe does not set has its default.

        Raises:
            ComponentError: they cannot work.
        """

    @classmethod
    def network_of(cls, tensors: Mapping[str, Tensor], **options: Any) -> Network:
        """The network for a checkpoint's tensors, and the tensors under its names.

        Called by ``vlcli checkpoint`` on the meta device, with tensors that have shapes and no values. An extractor
        that published checkpoints name (``checkpoints.yaml``) overrides it.

        Args:
            tensors: by the checkpoint's names.
            options: of the extractor, as in a recipe.

        Returns:
            The network, and the tensors under its names.

        Raises:
            DataError: of a layout that is not known.
        """
        raise NotImplementedError(f"{cls.__name__} reads no published checkpoints")

    def prepare(self, image: Image.Image, boxes: BoxList | None) -> Prepared:
        """Prepare one image; called once per image in loader workers, without weights.

        Args:
            image: RGB.
            boxes: given boxes in pixels of the image, or None.

        Returns:
            Pixels (3, h, w) with the scale and the boxes.
        """
        return self.preparation(image, boxes)

    @abstractmethod
    def extract(self, batch: list[Prepared]) -> list[Record]:
        """Compute features; called once per batch on the device, without gradient. Subclasses define it.

        Args:
            batch: prepared images of one input size.

        Returns:
            One record per image, in order: features (N, D) and boxes (N, 4) in pixels of the original image. A record
            must not depend on the rest of the batch.
        """

    def provenance(self) -> dict[str, Any]:
        """Facts that the feature store keeps; called once when the store is opened for writing.

        Returns:
            Name, parameters, ``weights_sha256``, ``trained_on``, kind of boxes, versions.
        """
        return {
            "extractor": type(self).__name__,
            "boxes": self.preparation.boxes,
            "trained_on": self.trained_on,
            "versions": {"vlcli": __version__, "torch": torch.__version__},
        }

    def attach(self, labels: Labels) -> None:  # noqa: B027 (a hook, not a duty)
        """Receive the names of the given boxes' labels; called once before the first image. Ignored by default.

        Args:
            labels: names of classes and attributes; empty where there are none.
        """

    def notes(self) -> list[str]:
        """Lines that a user should see (how weights were loaded, that they are random).

        Called once before the first image.

        Returns:
            The lines.
        """
        return []

    def to(self, device: str | torch.device) -> Self:
        """Move to a device; called once before the first image. Networks that are attributes of the extractor move too.

        Args:
            device: where :meth:`extract` computes.

        Returns:
            This extractor.
        """
        self.device = torch.device(device)
        for part in vars(self).values():
            if isinstance(part, nn.Module):
                part.to(self.device)
        return self


def to_record(item: Prepared, features: np.ndarray, **fields: Any) -> Record:
    """Return the record of a prepared image with given boxes: features (N, D), and more fields with a row per box."""
    boxes = item.boxes or BoxList(np.zeros((0, 4), np.float32))
    columns = {name: getattr(boxes, name) for name in ("classes", "scores", "attributes", "box_ids")}
    return Record(id=item.id, features=features, boxes=boxes.boxes, size=item.size, **{**columns, **fields})
