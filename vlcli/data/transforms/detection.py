"""Resizes and crops pictures for detectors (DETR)."""

from __future__ import annotations

from typing import Any

import numpy as np

from vlcli.data.transforms.base import Transform
from vlcli.data.transforms.scene import BILINEAR, TransformInput, crop, resize
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
            scene = self._crop(_scaled(scene, int(rng.choice(self.before_crop)), None), rng)
        return _scaled(scene, int(rng.choice(self.shorts)), self.longest)

    def evaluate(self, scene: TransformInput) -> TransformInput:
        return _scaled(scene, self.short, self.longest)

    def steps(self) -> list[dict[str, Any]]:
        return [{"step": "shorter", "pixels": self.short, "longest": self.longest, "interpolation": "bilinear"}]

    def _crop(self, scene: TransformInput, rng: np.random.Generator) -> TransformInput:
        low, high = self.crop_sides
        height, width = (int(rng.integers(min(low, side), min(high, side) + 1)) for side in scene.size)
        top, left = int(rng.integers(scene.size[0] - height + 1)), int(rng.integers(scene.size[1] - width + 1))
        return crop(scene, top, left, height, width)


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
