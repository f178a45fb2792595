"""Pictures with label maps for training: another scale, a crop, a mirror, other colours."""

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
    """A random scale, a crop of the model's size that one class does not fill, a mirror, colours (UPerNet, BEiT).

    What a small picture leaves of the crop is the mean colour, without a class. For scores the task decides.

    Args:
        needs: what the model asks for.
        short: shorter side that scales are shares of; None: the model's.
        long: the longer side's limit before the scale is drawn.
        scale: smallest and largest scale.
        most: share of a crop's labelled pixels that one class may have; another crop is drawn ten times.
        flip: how often a picture is mirrored.
        colours: how often each of brightness, contrast, saturation and hue changes.
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
            top, left = (int(rng.integers(side - own + 1)) for side, own in zip(scene.size, self.size, strict=True))
            found = crop(scene, top, left, *self.size)
            if found.labels is None or _largest(np.asarray(found.labels)) < self.most:
                break
        return found

    def _padded(self, scene: TransformInput) -> TransformInput:
        height, width = (max(side, own) for side, own in zip(scene.size, self.size, strict=True))
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


VOID = 255
"""Label of what no picture covers."""


def _largest(labels: NDArray[np.int32]) -> float:
    """The share of the labelled pixels that the commonest class has."""
    real = labels[(labels > 0) & (labels < VOID)]
    return 0.0 if real.size == 0 else float(np.bincount(real).max() / real.size)
