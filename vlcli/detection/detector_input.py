"""Resizes and normalises photographs for detectors, as each family's own program does."""

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
    """Resizes for a detector, and subtracts the mean from BGR.

    Attributes:
        resize: ``float``, as OpenCV resizes the image whose mean is off, by one factor;
            ``image``, as Pillow resizes the 8-bit image (detectron2).
        mean: of BGR in 0..255.
    """

    resize: Resize = "float"
    mean: tuple[float, float, float] = DETECTRON_MEAN

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
        if max(height, width) > self.long:
            again = self.long / max(height, width)
            height, width = height * again, width * again
        return max(1, int(height + 0.5)), max(1, int(width + 0.5))

    def __call__(self, image: Image.Image, boxes: BoxList | None) -> Prepared:
        size = (image.height, image.width)
        target = self.input_size(size)
        if min(target) < LEAST_SIDE:
            raise ValueError(f"{size[1]} x {size[0]} pixels are too narrow for a detector")
        scale = (target[1] / size[1], target[0] / size[0])
        if self.resize == "image":
            image = image.resize((target[1], target[0]), Image.Resampling.BILINEAR)
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
