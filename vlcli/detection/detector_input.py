"""From a photograph to a detector's input, as each family's own program does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vlcli.detection.extractor import Preparation, Prepared
from vlcli.images.boxes import BoxList

Resize = Literal["float", "image"]
"""How a picture is resized: as floats by interpolation, or as an image by Pillow."""
DETECTRON_MEAN = (102.9801, 115.9465, 122.7717)
"""Mean of BGR in 0..255 that Caffe's and Detectron's detectors were trained with."""

LEAST_SIDE = 16  # Pixels of a resized side that still give the coarsest map a cell


@dataclass
class DetectorPreparation(Preparation):
    """Resize to what a detector sees, BGR minus the mean.

    Attributes:
        resize: ``float``, as OpenCV resizes the image whose mean is off, by one factor;
            ``image``, as Pillow resizes the 8-bit image (detectron2).
        mean: of BGR in 0..255.
    """

    resize: Resize = "float"
    mean: tuple[float, float, float] = DETECTRON_MEAN

    def factor(self, size: tuple[int, int]) -> float:
        """From original to resized pixels, as OpenCV is told it; the longer side never passes ``long``."""
        factor = self.short / min(size)
        return self.long / max(size) if round(factor * max(size)) > self.long else factor

    def input_size(self, size: tuple[int, int]) -> tuple[int, int]:
        # Height and width after resizing an image of ``size``
        if self.resize == "float":  # halves go to the even number, as in OpenCV
            factor = self.factor(size)
            return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
        factor = self.short / min(size)
        height, width = (float(self.short) if side == min(size) else factor * side for side in size)
        if max(height, width) > self.long:
            again = self.long / max(height, width)
            height, width = height * again, width * again
        return max(1, int(height + 0.5)), max(1, int(width + 0.5))

    def __call__(self, image: Image.Image, boxes: BoxList | None) -> Prepared:
        size = (image.height, image.width)
        target = self.input_size(size)
        if min(target) < LEAST_SIDE:
            raise ValueError(f"{size[1]} x {size[0]} pixels are too narrow for a detector")
        if self.resize == "image":
            resized = image.resize((target[1], target[0]), Image.Resampling.BILINEAR)
            pixels, scale = self._centred(resized), (target[1] / size[1], target[0] / size[0])
        else:
            factor = self.factor(size)
            pixels, scale = _sampled(self._centred(image), target, factor), (factor, factor)
        return Prepared(pixels, size, scale, self._regions(size, boxes))

    def _centred(self, image: Image.Image) -> Tensor:
        pixels = np.asarray(image, dtype=np.float32)[:, :, ::-1] - np.array(self.mean, dtype=np.float32)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def _sampled(pixels: Tensor, target: tuple[int, int], factor: float) -> Tensor:
    (upper, lower, down), (left, right, across) = (
        _places(*pair, factor) for pair in zip(pixels.shape[1:], target, strict=True)
    )
    rows = pixels[:, :, left].lerp(pixels[:, :, right], across)  # (3, h, W)
    return rows[:, upper].lerp(rows[:, lower], down[:, None])


def _places(length: int, target: int, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    place = ((np.arange(target) + 0.5) / factor - 0.5).clip(0, length - 1)
    before = np.floor(place).astype(np.int64)
    after = np.minimum(before + 1, length - 1)
    return torch.from_numpy(before), torch.from_numpy(after), torch.from_numpy((place - before).astype(np.float32))
