"""Augments pictures with label maps for training: scale, crop, flip, colours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlcli.data.transforms.base import Transform, lent
from vlcli.data.transforms.detection import scaled_size
from vlcli.data.transforms.scene import BILINEAR, TransformInput, crop, resize
from vlcli.nn.model import InputSpec

TRIES = 10


class Segmentation(Transform):
    """Random scale, crop of the model's size that one class does not fill, flip, colours (UPerNet, BEiT).

    A small picture is padded to the crop with the mean colour, without a class. For scores the task decides.

    Args:
        needs: inputs of the model.
        short: shorter side that scales are shares of; None: the model's.
        long: the longer side's limit before the scale is drawn.
        scale: smallest and largest scale.
        most: share of a crop's labelled pixels that one class may have; another crop is drawn ten times.
        flip: probability that a picture is mirrored.
        colours: probability that each of brightness, contrast, saturation and hue changes.
    """

    paper = "BEiT, Bao et al. 2022, appendix (ADE20K); the settings are those of mmsegmentation"

    def __init__(
        self,
        needs: InputSpec,
        *,
        short: int | None = None,
        long: int = 2048,
        scale: tuple[float, float] = (0.5, 2.0),
        most: float = 0.75,
        flip: float = 0.5,
        colours: float = 0.5,
    ) -> None:
        super().__init__(needs, flip=flip)
        self.size = needs.size or (512, 512)
        self.short, self.long, self.scale = short or min(self.size), long, scale
        self.most, self.colours = most, colours

    def train(self, scene: TransformInput, rng: np.random.Generator) -> TransformInput:
        factor = rng.uniform(*self.scale)
        height, width = scaled_size(scene.size, self.short, self.long)
        scene = resize(scene, max(1, round(height * factor)), max(1, round(width * factor)), BILINEAR)
        scene = self.maybe_flip(self._cropped(scene, rng), rng)
        return replace(scene, image=self._coloured(scene.image, rng))

    def _cropped(self, scene: TransformInput, rng: np.random.Generator) -> TransformInput:
        scene = self._padded(scene)
        for _ in range(TRIES if self.most < 1 else 1):
            sides = zip(scene.size, self.size, strict=True)
            top, left = (int(rng.integers(side - wanted + 1)) for side, wanted in sides)
            cropped = crop(scene, top, left, *self.size)
            if cropped.labels is None or _largest(np.asarray(cropped.labels)) < self.most:
                break
        return cropped

    def _padded(self, scene: TransformInput) -> TransformInput:
        height, width = map(max, scene.size, self.size)
        if (height, width) == scene.size:
            return scene
        mean = tuple(round(255 * value) for value in self.needs.mean)
        canvas = Image.new("RGB", (width, height), mean)
        canvas.paste(scene.image, (0, 0))
        if scene.labels is None:
            return replace(scene, image=canvas)
        labels = Image.new(scene.labels.mode, (width, height), VOID)
        labels.paste(scene.labels, (0, 0))
        return replace(scene, image=canvas, labels=labels)

    def _coloured(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        from torchvision.transforms import ColorJitter

        for reach in ({"brightness": 0.125}, {"contrast": 0.5}, {"saturation": 0.5}, {"hue": 0.1}):
            if rng.random() < self.colours:
                with lent(rng):
                    image = ColorJitter(**reach)(image)
        return image


# Label of padding.
VOID = 255


def _largest(labels: NDArray[np.int32]) -> float:
    """Return the share of the labelled pixels that the most frequent class has."""
    real = labels[(labels > 0) & (labels < VOID)]
    return 0.0 if real.size == 0 else float(np.bincount(real).max() / real.size)
