"""Augments pictures for vision-language pre-training (ALBEF, VLMo)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vlcli.data.transforms.base import Transform, lent
from vlcli.data.transforms.randaugment import randaugment
from vlcli.data.transforms.scene import TransformInput, crop, resize
from vlcli.nn.model import InputSpec


class VLAugment(Transform):
    """Random resized crop, flip that swaps left and right in the sentence, RandAugment (ALBEF, VLMo).

    Scores are taken on the whole picture, squashed. A picture whose boxes or label map are read is not sheared,
    shifted or rotated.

    Args:
        needs: inputs of the model.
        scale: share of the area that a crop keeps; (1, 1) for no crop.
        flip: probability that a picture is mirrored.
        operations: of RandAugment, a picture; 0 for none.
        magnitude: theirs, 0 to 10.
    """

    paper = "ALBEF, Li et al., NeurIPS 2021, section 4; VLMo, Bao et al., NeurIPS 2022, section 4.1"

    def __init__(
        self,
        needs: InputSpec,
        *,
        scale: tuple[float, float] = (0.5, 1.0),
        flip: float = 0.5,
        operations: int = 2,
        magnitude: float = 7.0,
    ) -> None:
        super().__init__(needs, flip=flip)
        self.scale, self.operations, self.magnitude = scale, operations, magnitude

    def train(self, scene: TransformInput, rng: np.random.Generator) -> TransformInput:
        from timm.data.transforms import RandomResizedCropAndInterpolation

        if self.scale != (1.0, 1.0):
            with lent(rng):
                window = RandomResizedCropAndInterpolation.get_params(scene.image, self.scale, (3 / 4, 4 / 3))
            scene = crop(scene, *window)
        scene = resize(scene, *(self.needs.size or scene.size))
        scene = self.maybe_flip(scene, rng)
        image = randaugment(scene.image, rng, count=self.operations, magnitude=self.magnitude, in_place=scene.placed)
        return replace(scene, image=image)
