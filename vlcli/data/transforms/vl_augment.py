"""Augments pictures for vision-language pre-training with RandAugment (ALBEF, VLMo)."""

from dataclasses import replace
from typing import cast

import numpy as np
from PIL import Image

from vlcli.data.transforms.base import Transform, TransformInput, crop, lent, resize
from vlcli.nn.model import InputSpec

# First words of the operations that move a picture's content.
PLACES = ("Shear", "Translate", "Rotate")
# Operations and their strongest arguments.
OPERATIONS = {
    "Identity": 0.0,
    "AutoContrast": 0.0,
    "Equalize": 0.0,
    "Brightness": 1.8,
    "Sharpness": 1.8,
    "ShearX": 0.3,
    "ShearY": 0.3,
    "TranslateX": 10.0,
    "TranslateY": 10.0,
    "Rotate": 30.0,
}
GREY = (128, 128, 128)
_TOP = 10.0  # the strongest magnitude


def randaugment(
    image: Image.Image, rng: np.random.Generator, *, count: int = 2, magnitude: float = 7, in_place: bool = False
) -> Image.Image:
    """Apply ``count`` operations to an RGB image, each with probability 0.5 (Cubuk et al. 2020; ALBEF's levels).

    Args:
        rng: draws the operations, whether each is applied, and its direction.
        magnitude: 0 to 10.
        in_place: only operations that do not move the content.
    """
    known = [name for name in OPERATIONS if not (in_place and name.startswith(PLACES))]
    for name in rng.choice(known, count):
        acts, sign = rng.random() < 0.5, 1 if rng.random() < 0.5 else -1
        image = apply(image, str(name), magnitude, sign) if acts else image
    return image


def apply(image: Image.Image, name: str, magnitude: float, sign: int) -> Image.Image:
    """Apply one of :data:`OPERATIONS` at a magnitude of 0 to 10 in the direction ``sign``; new pixels are grey."""
    from timm.data.auto_augment import NAME_TO_OP

    if name == "Identity":
        return image
    level, most = magnitude / _TOP, OPERATIONS[name]
    levels = [sign * level * most if name.startswith(PLACES) else level * most + 0.1] if most else []
    return cast(Image.Image, NAME_TO_OP[name](image, *levels, fillcolor=GREY, resample=Image.Resampling.BILINEAR))


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
    borrows_generators = True

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
