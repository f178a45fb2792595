"""Flips, crops and resizes a picture together with its boxes, label map and sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlcli.data.transforms.words import mirrored, names_sides

BICUBIC, BILINEAR = Image.Resampling.BICUBIC, Image.Resampling.BILINEAR


@dataclass(frozen=True)
class TransformInput:
    """One picture of an example on its way to a model.

    Attributes:
        image: RGB.
        boxes: (R, 4) x1, y1, x2, y2 in pixels of ``image``, or None.
        kept: (R,) indices of these boxes among those read; None: all, in order.
        labels: class ids of the pixels as a picture of one channel (``L`` or ``I``), or None.
        text: the example's sentence, or None.
        pictures: number of pictures of the example.
        flipped: whether the picture was mirrored.
    """

    image: Image.Image
    boxes: NDArray[np.float32] | None = None
    kept: NDArray[np.int64] | None = None
    labels: Image.Image | None = None
    text: str | None = None
    pictures: int = 1
    flipped: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the picture."""
        return self.image.height, self.image.width

    @property
    def placed(self) -> bool:
        """Whether there are boxes or labels, so that the picture must not be sheared or rotated alone."""
        return self.boxes is not None or self.labels is not None


def may_flip(scene: TransformInput) -> bool:
    """Whether mirroring keeps the sentence true: with several pictures, ``the left one`` may mean a picture."""
    return scene.pictures == 1 or not names_sides(scene.text)


def flip(scene: TransformInput) -> TransformInput:
    """Mirror a picture with its boxes and label map; swap left and right in the sentence."""
    boxes = scene.boxes
    if boxes is not None:
        width = np.float32(scene.image.width)
        boxes = np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], 1)
    text = mirrored(scene.text) if scene.text is not None and scene.pictures == 1 else scene.text
    mirror = Image.Transpose.FLIP_LEFT_RIGHT
    labels = None if scene.labels is None else scene.labels.transpose(mirror)
    image = scene.image.transpose(mirror)
    return replace(scene, image=image, boxes=boxes, labels=labels, text=text, flipped=not scene.flipped)


def crop(scene: TransformInput, top: int, left: int, height: int, width: int) -> TransformInput:
    """Crop a picture; boxes are clipped, and those without area are left out."""
    window = (left, top, left + width, top + height)
    labels = None if scene.labels is None else scene.labels.crop(window)
    cropped = replace(scene, image=scene.image.crop(window), labels=labels)
    if scene.boxes is None:
        return cropped
    limit = np.array([width, height, width, height], np.float32)
    boxes = np.clip(scene.boxes - np.array([left, top, left, top], np.float32), 0, limit)
    there = np.flatnonzero((boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1]))
    kept = there if scene.kept is None else scene.kept[there]
    return replace(cropped, boxes=boxes[there], kept=kept)


def resize(scene: TransformInput, height: int, width: int, resample: Image.Resampling = BICUBIC) -> TransformInput:
    """Resize a picture; a label map takes the nearest label."""
    if scene.size == (height, width):
        return scene
    boxes = scene.boxes
    if boxes is not None:
        across, down = np.float32(width / scene.image.width), np.float32(height / scene.image.height)
        boxes = boxes * np.array([across, down, across, down], np.float32)
    labels = None if scene.labels is None else scene.labels.resize((width, height), Image.Resampling.NEAREST)
    return replace(scene, image=scene.image.resize((width, height), resample), boxes=boxes, labels=labels)
