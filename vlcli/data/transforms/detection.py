"""Resizes and crops pictures for detectors (DETR), and augments pictures with label maps."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from vlcli.data.transforms.base import BILINEAR, Transform, TransformInput, crop, lent, resize
from vlcli.nn.model import InputSpec


class Detection(Transform):
    """Shorter side drawn from a list, mirrored, cropped half the time (DETR); the longest scale for scores.

    Args:
        needs: inputs of the model.
        shorts: shorter sides to choose from.
        longest: the longer side's limit.
        flip: probability that a picture is mirrored.
        cropped: probability that it is cropped.
        before_crop: shorter sides before a crop.
        crop_sides: smallest and largest side of a crop.
        short: for scores; None takes the largest of ``shorts``.
    """

    paper = "DETR, Carion et al., ECCV 2020, section 4"
    sizes = True

    def __init__(
        self,
        needs: InputSpec,
        *,
        shorts: list[int] = [480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800],  # noqa: B006 (only read)
        longest: int = 1333,
        flip: float = 0.5,
        cropped: float = 0.5,
        before_crop: list[int] = [400, 500, 600],  # noqa: B006
        crop_sides: tuple[int, int] = (384, 600),
        short: int | None = None,
    ) -> None:
        super().__init__(needs, flip=flip)
        self.shorts, self.longest, self.cropped = shorts, longest, cropped
        self.before_crop, self.crop_sides = before_crop, crop_sides
        self.short = short or max(shorts)

    def train(self, scene: TransformInput, rng: np.random.Generator) -> TransformInput:
        scene = self.maybe_flip(scene, rng)
        if rng.random() < self.cropped:
            scene = _scaled(scene, int(rng.choice(self.before_crop)), None)
            low, high = self.crop_sides
            height, width = (int(rng.integers(min(low, side), min(high, side) + 1)) for side in scene.size)
            top, left = int(rng.integers(scene.size[0] - height + 1)), int(rng.integers(scene.size[1] - width + 1))
            scene = crop(scene, top, left, height, width)
        return _scaled(scene, int(rng.choice(self.shorts)), self.longest)

    def evaluate(self, scene: TransformInput) -> TransformInput:
        return _scaled(scene, self.short, self.longest)

    def steps(self) -> list[dict[str, Any]]:
        return [{"step": "shorter", "pixels": self.short, "longest": self.longest, "interpolation": "bilinear"}]


def _scaled(scene: TransformInput, short: int, longest: int | None) -> TransformInput:
    return resize(scene, *scaled_size(scene.size, short, longest), BILINEAR)


def scaled_size(size: tuple[int, int], short: int, longest: int | None) -> tuple[int, int]:
    """Return height and width with the shorter side ``short``, or less where the longer would pass ``longest``.

    >>> scaled_size((480, 640), 800, 1333)
    (800, 1066)
    """
    small, large = min(size), max(size)
    if longest is not None and large / small * short > longest:
        short = round(longest * small / large)
    if small == short:
        return size
    height, width = size
    return (int(short * height / width), short) if width < height else (short, int(short * width / height))


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
    borrows_generators = True

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
        scene = self.maybe_flip(self._cropped(self._padded(scene), rng), rng)
        return replace(scene, image=self._coloured(scene.image, rng))

    def _cropped(self, scene: TransformInput, rng: np.random.Generator) -> TransformInput:
        for _ in range(TRIES if self.most < 1 else 1):
            sides = zip(scene.size, self.size, strict=True)
            top, left = (int(rng.integers(side - wanted + 1)) for side, wanted in sides)
            cropped = crop(scene, top, left, *self.size)
            if cropped.labels is None or _largest(np.asarray(cropped.labels)) < self.most:
                break
        return cropped

    def _padded(self, scene: TransformInput) -> TransformInput:
        down, across = (max(wanted - side, 0) for side, wanted in zip(scene.size, self.size, strict=True))
        mean = tuple(round(255 * value) for value in self.needs.mean)
        image = ImageOps.expand(scene.image, (0, 0, across, down), mean)
        labels = None if scene.labels is None else ImageOps.expand(scene.labels, (0, 0, across, down), VOID)
        return replace(scene, image=image, labels=labels)

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
    real = labels[(labels > 0) & (labels < VOID)]
    return float(np.bincount(real).max() / real.size) if real.size else 0.0
