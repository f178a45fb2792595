"""Defines the base class of transforms, which turn a picture and its annotations into a model's input."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from vlcli.data.transforms.scene import TransformInput, flip, may_flip
from vlcli.nn.model import InputSpec


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

    def __init__(self, needs: InputSpec, *, flip: float = 0.0) -> None:
        self.needs, self.flip = needs, flip

    def train(self, scene: TransformInput, rng: np.random.Generator) -> TransformInput:
        """Change a training image.

        Called once per image and epoch in loader workers, before resizing and normalisation.

        Args:
            scene: the image (RGB, uint8) with boxes, label map, sentence and answers.
            rng: of (seed, epoch, example); all images of an example share it.

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
        wanted = rng.random() < self.flip
        return flip(scene) if wanted and may_flip(scene) else scene


@contextmanager
def lent(rng: np.random.Generator) -> Iterator[None]:
    """Seeds the global generators of random, numpy and torch from ``rng`` for library code; restores them after."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    seeds = rng.integers(2**31, size=3)
    try:
        random.seed(int(seeds[0]))
        np.random.seed(int(seeds[1]))
        torch.default_generator.manual_seed(int(seeds[2]))
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
