"""Base class of extractors: images, with given boxes or none, to records of region features; resizes images.

An extractor prepares one image at a time in worker processes (a picklable :class:`Preparation`, which holds no weights)
and extracts from a batch of prepared images on the device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
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
    """One image on its way to the device."""

    pixels: Tensor  # the resized image (3, h, w): uint8 RGB, or what the extractor's own preparation makes
    size: tuple[int, int]  # height and width of the original in pixels
    scale: tuple[float, float]  # (x, y) factors from original to resized pixels
    boxes: BoxList | None = None  # regions in original pixels, None where the extractor proposes them
    id: str = ""  # the image; filled in by the extraction
    record: Record | None = None  # its regions, for an extractor that reads them instead of pixels

    def pin_memory(self) -> Prepared:
        return replace(self, pixels=self.pixels.pin_memory())

    def scaled_boxes(self) -> Tensor:
        """Return the boxes in resized pixels (N, 4), float32."""
        if self.boxes is None:
            return torch.zeros(0, 4)
        x, y = self.scale
        return torch.from_numpy(self.boxes.boxes.astype(np.float32)) * torch.tensor([x, y, x, y])


@dataclass
class Preparation:
    """Resizes a decoded image: shorter side to ``short``, longer at most ``long``."""

    short: int = 600  # pixels of the shorter side; 0 keeps the original size
    long: int = 1000  # most pixels of the longer side; 0 for no limit
    # where regions come from: ``given``, ``grid``, ``given-or-grid``, ``cells`` (those of the extractor's feature map)
    # or ``none`` (the extractor's own)
    boxes: str = "given"
    grid: tuple[int, int] = (6, 6)  # rows and columns of a grid of boxes that tile the image
    limit: int | None = None  # most boxes of an image, by score; None for all
    multiple: int = 1  # sides are rounded up to a multiple of this (patches of a transformer)
    square: bool = False  # stretch to ``short`` by ``short`` instead (transformers with a fixed grid)

    def input_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return height and width after resizing an image of ``size``."""
        if self.square and self.short:
            return self.short, self.short
        factor = self.short / min(size) if self.short else 1.0
        if self.long and max(size) * factor > self.long:
            factor = self.long / max(size)
        height, width = (-(-max(1, round(side * factor)) // self.multiple) * self.multiple for side in size)
        return height, width

    def __call__(self, image: Image.Image, boxes: BoxList | None) -> Prepared:
        width, height = image.size
        down, across = self.input_size((height, width))
        if (across, down) != image.size:
            image = image.resize((across, down), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1).contiguous()  # (3, h, w)
        regions = self._regions((height, width), boxes)
        return Prepared(pixels, (height, width), (across / width, down / height), regions)

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
        inside = boxes.clipped(size).with_area()
        if len(boxes) and not len(inside):
            raise ValueError("none of its boxes lies inside the picture")
        return inside.top(self.limit)


def grid_boxes(size: tuple[int, int], grid: tuple[int, int]) -> BoxList:
    """Return boxes that tile an image of ``size`` (height, width) in rows and columns, row by row."""
    y, x = (np.linspace(0, side, count + 1, dtype=np.float32) for side, count in zip(size, grid, strict=True))
    tiles = [[left, top, right, bottom] for top, bottom in pairwise(y) for left, right in pairwise(x)]
    return BoxList(np.array(tiles, dtype=np.float32).reshape(-1, 4), size=size)


@dataclass(frozen=True)
class Network:
    """A network and a checkpoint's tensors for it."""

    module: nn.Module  # the network
    tensors: Mapping[str, Tensor]  # by the module's names
    unneeded: Sequence[str] = ()  # patterns (``fnmatch``) of tensors that have no place in it and need none


class Extractor(ABC):
    """Base of every extractor."""

    paper: ClassVar[str] = ""
    weights_help: ClassVar[str] = ""  # one line on where to get its weights, for whoever has none
    # Whether it is given pictures, or the regions that another extraction stored (``features`` of the stage)
    reads: Literal["pixels", "regions"] = "pixels"
    set: ClassVar[str] = DEFAULT_SET  # The box set it writes
    dim: int  # width D of the features
    trained_on: str = "untrained"  # what its weights learned from; ``untrained`` for random ones
    preparation: Preparation  # what worker processes do to an image
    device: torch.device = torch.device("cpu")  # where it runs
    batch_size: int = 8  # images at a time that suit it, where the recipe does not say

    @classmethod  # noqa: B027 (a hook, not a duty)
    def rehearse(cls, parameters: Mapping[str, Any]) -> None:
        """Check parameters before a recipe runs; called on the meta device, without weights. By default nothing.

        Args:
            parameters: all of the extractor's; what the recipe does not set has its default. ComponentError: they
                cannot work.
        """

    @classmethod
    def network_of(cls, tensors: Mapping[str, Tensor], **options: Any) -> Network:
        """The network for a checkpoint's tensors, and the tensors under its names.

        Called by ``vlcli checkpoint`` on the meta device, with tensors that have shapes and no values. An extractor
        that published checkpoints name (``checkpoints.yaml``) overrides it.

        Args:
            tensors: by the checkpoint's names; DataError: of an unknown layout.
            options: of the extractor, as in a recipe.

        Returns:
            The network, and the tensors under its names.
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
        """Lines for the user (how weights were loaded, that they are random); called once before the first image.

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


Resize = Literal["float", "image"]
"""How a picture is resized: as floats by interpolation, or as an image by Pillow."""
DETECTRON_MEAN = (102.9801, 115.9465, 122.7717)
"""Mean of BGR in 0..255 that Caffe's and Detectron's detectors were trained with."""

LEAST_SIDE = 16  # Pixels of a resized side that still give the coarsest map a cell


@dataclass
class DetectorPreparation(Preparation):
    """Resizes for a detector, and subtracts the mean from BGR."""

    # OpenCV resizes floats whose mean is off, by one factor; Pillow and detectron2 resize the 8-bit image
    resize: Resize = "float"
    mean: tuple[float, float, float] = DETECTRON_MEAN  # of BGR in 0..255

    def factor(self, size: tuple[int, int]) -> float:
        """Return the factor from original to resized pixels for OpenCV; the longer side never passes ``long``."""
        factor = self.short / min(size)
        return self.long / max(size) if round(factor * max(size)) > self.long else factor

    def input_size(self, size: tuple[int, int]) -> tuple[int, int]:
        # Height and width after resizing an image of ``size``
        if self.resize == "float":  # halves go to the even number, as in OpenCV
            factor = self.factor(size)
            return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
        factor = self.short / min(size)
        height, width = (float(self.short) if side == min(size) else factor * side for side in size)
        again = min(1.0, self.long / max(height, width))
        return max(1, int(height * again + 0.5)), max(1, int(width * again + 0.5))

    def __call__(self, image: Image.Image, boxes: BoxList | None) -> Prepared:
        size = (image.height, image.width)
        target = self.input_size(size)
        if min(target) < LEAST_SIDE:
            raise ValueError(f"{size[1]} x {size[0]} pixels are too narrow for a detector")
        scale = (target[1] / size[1], target[0] / size[0])
        if self.resize == "image":
            image = image.resize(target[::-1], Image.Resampling.BILINEAR)
        bgr = np.asarray(image, dtype=np.float32)[:, :, ::-1] - np.array(self.mean, dtype=np.float32)
        pixels = torch.from_numpy(np.ascontiguousarray(bgr.transpose(2, 0, 1)))  # (3, h, w)
        if self.resize == "float":  # bilinear samples at the factor itself, which the rounded sides do not quite give
            scale = (self.factor(size),) * 2
            (upper, lower, down), (left, right, across) = (
                _samples(*pair, scale[0]) for pair in zip(size, target, strict=True)
            )
            rows = pixels[:, :, left].lerp(pixels[:, :, right], across)  # (3, h, W)
            pixels = rows[:, upper].lerp(rows[:, lower], down[:, None])
        return Prepared(pixels, size, scale, self._regions(size, boxes))


def _samples(length: int, target: int, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    # For every sample along one side: the pixels before and after it, and how far it lies between them; in float64 as
    # in OpenCV, for float32 would cost a hundredth of a grey level
    exact = ((np.arange(target) + 0.5) / factor - 0.5).clip(0, length - 1)
    before = np.floor(exact).astype(np.int64)
    after = np.minimum(before + 1, length - 1)
    return torch.from_numpy(before), torch.from_numpy(after), torch.from_numpy((exact - before).astype(np.float32))
