"""Defines the base class of transforms, and flips, crops and resizes a picture with its boxes, labels and sentence."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch.utils.data import get_worker_info

from vlcli.ahead import THREAD
from vlcli.errors import ComponentError
from vlcli.nn.model import InputSpec

_SIDES = re.compile(r"(left|right)", re.IGNORECASE)
_WORD = re.compile(r"\b(left|right)(?=\b|most\b|hand\b|ward\b|wards\b|side\b)", re.IGNORECASE)
_STRINGS = ("answers", "answer", "raw_answers", "full_answer")


def mirrored(text: str) -> str:
    """Swap left and right in a sentence (leftmost, right-hand ... too), capitals kept.

    >>> mirrored("The leftmost cup, right of a bright plate")
    'The rightmost cup, left of a bright plate'
    """
    return _WORD.sub(lambda match: _SIDES.sub(_other, match[0]), text)


def mirrored_targets(targets: dict[str, Any]) -> dict[str, Any]:
    """Swap left and right in the answers among an example's targets."""
    return {name: _mirrored(value) if name in _STRINGS else value for name, value in targets.items()}


def _mirrored(value: Any) -> Any:
    if isinstance(value, str):
        return mirrored(value)
    if isinstance(value, dict):
        return {_mirrored(key): score for key, score in value.items()}
    if isinstance(value, list):
        return [_mirrored(item) for item in value]
    return value


def _other(match: re.Match[str]) -> str:
    word = "right" if match[0].lower() == "left" else "left"
    return word.upper() if match[0].isupper() else word.capitalize() if match[0][0].isupper() else word


class Transform:
    """Squash every picture to the model's size; the default.

    Base of every transform. ``train`` and ``evaluate`` run in loader workers; their result is resized to the model's
    size where it has one, and normalised. ``rng`` is that of (seed, epoch, example): workers and a resume do not change
    its draws; all pictures of an example share it.

    Args:
        needs: inputs of the model.
        flip: probability that a training picture is mirrored.
    """

    paper: ClassVar[str] = ""
    # Whether the transform decides on the size of pictures for a model that takes any.
    sizes: ClassVar[bool] = False
    # Whether ``train`` calls :func:`lent`: without workers, its pictures are then made between two steps.
    borrows_generators: ClassVar[bool] = False

    def __init__(self, needs: InputSpec, *, flip: float = 0.0) -> None:
        self.needs, self.flip = needs, flip

    def train(self, scene: TransformInput, rng: np.random.Generator) -> TransformInput:
        """Change a training image; called per image and epoch in loader workers, before resizing and normalisation.

        Args:
            scene: the image (RGB, uint8) with boxes, label map, sentence and answers.
            rng: of (seed, epoch, example).

        Returns:
            The changed scene.
        """
        return self.maybe_flip(scene, rng)

    def evaluate(self, scene: TransformInput) -> TransformInput:
        """Change an image that is scored; called once per image in loader workers, before resizing and normalisation.

        Args:
            scene: the image (RGB, uint8) with boxes and label map.

        Returns:
            The changed scene.
        """
        return scene

    def steps(self) -> list[dict[str, Any]]:
        """Describe :meth:`evaluate` for readers of an exported model; called once per ONNX export.

        Returns:
            Steps in order, of the kinds that docs/onnx.md lists (``cover``, ``crop``, ``shorter``); a subclass whose
            ``evaluate`` does something else is named as ``transform``. None by default.
        """
        changed = type(self).evaluate is not Transform.evaluate
        return [{"step": "transform", "name": type(self).__name__}] if changed else []

    def finish(self, pixels: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        """Transform a training image's pixels last (random erasing); called once per image after normalisation.

        Args:
            pixels: (3, H, W) normalised.
            rng: the one that :meth:`train` drew from.

        Returns:
            (3, H, W).
        """
        return pixels

    def maybe_flip(self, scene: TransformInput, rng: np.random.Generator) -> TransformInput:
        """Mirror a scene with probability ``flip``, unless its sentence speaks of left or right; called by subclasses.

        Args:
            scene: the image and what belongs to it.
            rng: one number is drawn from it.

        Returns:
            The scene, mirrored or not.
        """
        return flip(scene) if rng.random() < self.flip and may_flip(scene) else scene


@contextmanager
def lent(rng: np.random.Generator) -> Iterator[None]:
    """Seeds the global generators of random, numpy and torch from ``rng`` for library code; restores them after.

    Worker processes keep the seeds, since nothing else draws there. Dropout draws from the same generators: a transform
    that uses this sets ``borrows_generators``. Raises ComponentError: it does not, and the model trains beside.
    """
    if threading.current_thread().name.startswith(THREAD):
        what = "A transform borrows the global generators while the model draws from them."
        raise ComponentError(what, expected="borrows_generators = True in the class of the transform")
    seeders: tuple[Callable[[int], Any], ...] = (random.seed, np.random.seed, torch.default_generator.manual_seed)
    restorers: tuple[Callable[[Any], None], ...] = (random.setstate, np.random.set_state, torch.set_rng_state)
    states = [random.getstate(), np.random.get_state(), torch.get_rng_state()]
    try:
        for seed, number in zip(seeders, rng.integers(2**31, size=3).tolist(), strict=True):
            seed(number)
        yield
    finally:
        if get_worker_info() is None:  # in a worker nothing else draws
            for restore, state in zip(restorers, states, strict=True):
                restore(state)


BICUBIC, BILINEAR = Image.Resampling.BICUBIC, Image.Resampling.BILINEAR


@dataclass(frozen=True)
class TransformInput:
    """One RGB picture of an example on its way to a model.

    Attributes:
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
        """Height and width in pixels."""
        return self.image.height, self.image.width

    @property
    def placed(self) -> bool:
        """Whether boxes or labels forbid to shear or rotate the picture alone."""
        return self.boxes is not None or self.labels is not None


def may_flip(scene: TransformInput) -> bool:
    """Whether mirroring keeps the sentence true: with several pictures, ``the left one`` may mean a picture."""
    return scene.pictures == 1 or scene.text is None or _WORD.search(scene.text) is None


def flip(scene: TransformInput) -> TransformInput:
    """Mirror a picture with its boxes and label map; swap left and right in the sentence."""
    boxes, text = scene.boxes, scene.text
    if boxes is not None:
        width = np.float32(scene.image.width)
        boxes = np.stack([width - boxes[:, 2], boxes[:, 1], width - boxes[:, 0], boxes[:, 3]], 1)
    if text is not None and scene.pictures == 1:
        text = mirrored(text)
    labels = None if scene.labels is None else ImageOps.mirror(scene.labels)
    image = ImageOps.mirror(scene.image)
    return replace(scene, image=image, boxes=boxes, labels=labels, text=text, flipped=not scene.flipped)


def crop(scene: TransformInput, top: int, left: int, height: int, width: int) -> TransformInput:
    """Crop a picture; boxes are clipped, and those without area are left out."""
    window = (left, top, left + width, top + height)
    labels = None if scene.labels is None else scene.labels.crop(window)
    cropped = replace(scene, image=scene.image.crop(window), labels=labels)
    if scene.boxes is None:
        return cropped
    boxes = np.clip(scene.boxes - np.array([left, top] * 2, np.float32), 0, np.array([width, height] * 2, np.float32))
    there = np.flatnonzero((boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1]))
    return replace(cropped, boxes=boxes[there], kept=there if scene.kept is None else scene.kept[there])


def resize(scene: TransformInput, height: int, width: int, resample: Image.Resampling = BICUBIC) -> TransformInput:
    """Resize a picture; a label map takes the nearest label."""
    if scene.size == (height, width):
        return scene
    boxes = scene.boxes
    if boxes is not None:
        boxes = boxes * np.array([width / scene.image.width, height / scene.image.height] * 2, np.float32)
    labels = None if scene.labels is None else scene.labels.resize((width, height), Image.Resampling.NEAREST)
    return replace(scene, image=scene.image.resize((width, height), resample), boxes=boxes, labels=labels)
