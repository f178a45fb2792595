"""From a photograph to a detector's input, as each family's own program does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vlcli.features.boxes import BoxList
from vlcli.features.extractor import Preparation, Prepared

Resize = Literal["float", "image"]
DETECTRON_MEAN = (102.9801, 115.9465, 122.7717)
"""Mean of BGR in 0..255 that Caffe's and Detectron's detectors were trained with."""


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
        """From original to resized pixels; the longer side never passes ``long``."""
        factor = self.short / min(size)
        if self.resize == "float":
            return self.long / max(size) if round(factor * max(size)) > self.long else factor
        return factor if factor * max(size) <= self.long else factor * (self.long / (factor * max(size)))

    def input_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width after resizing an image of ``size``."""
        factor = self.factor(size)
        if self.resize == "float":  # halves go to the even number, as in OpenCV
            return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
        return max(1, int(size[0] * factor + 0.5)), max(1, int(size[1] * factor + 0.5))

    def __call__(self, image: Image.Image, boxes: BoxList | None) -> Prepared:
        """Resize and settle the regions."""
        size = (image.height, image.width)
        target = self.input_size(size)
        if self.resize == "image":
            resized = image.resize((target[1], target[0]), Image.Resampling.BILINEAR)
            pixels, scale = self._centred(resized), (target[1] / size[1], target[0] / size[0])
        else:
            factor = self.factor(size)
            pixels, scale = _sampled(self._centred(image), target, factor), (factor, factor)
        return Prepared(pixels, size, scale, self._regions(size, boxes))

    def _centred(self, image: Image.Image) -> Tensor:
        """BGR minus the mean (3, h, w), float32."""
        pixels = np.asarray(image, dtype=np.float32)[:, :, ::-1] - np.array(self.mean, dtype=np.float32)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def _sampled(pixels: Tensor, target: tuple[int, int], factor: float) -> Tensor:
    """Bilinear samples at the factor itself, which the rounded sides do not quite give."""
    sampled: Tensor = torch.ops.aten.upsample_bilinear2d(pixels[None], list(target), False, factor, factor)
    return sampled[0]
