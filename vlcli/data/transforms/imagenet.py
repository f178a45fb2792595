"""Augments pictures as DeiT does on ImageNet, with timm."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from vlcli.data.transforms.base import BICUBIC, BILINEAR, Transform, TransformInput, crop, flip, lent, may_flip, resize
from vlcli.data.transforms.vl_augment import PLACES
from vlcli.errors import ComponentError
from vlcli.nn.model import InputSpec

RESAMPLE = {"bicubic": BICUBIC, "bilinear": BILINEAR}


class ImageNet(Transform):
    """Random resized crop, flip, RandAugment, colour jitter and erasing; centre crop for scores (DeiT's settings).

    The draws are timm's ``create_transform``'s, in its order. A picture whose boxes or label map are read is not
    sheared, shifted or rotated.

    Args:
        needs: inputs of the model.
        size: side in pixels, for a model that takes any size.
        scale: share of the area that a crop keeps.
        ratio: its width to height.
        flip: probability that a picture is mirrored.
        augment: a policy of timm (``rand-m9-mstd0.5-inc1``), empty for none.
        jitter: of brightness, contrast and saturation, where there is no policy.
        erasing: probability that a rectangle is replaced by noise.
        interpolation: ``bicubic`` or ``bilinear``.
        crop: for scores: side of the centre crop to the shorter side of the picture it is cut from.
    """

    paper = "DeiT, Touvron et al., ICML 2021, Table 9; timm"
    sizes = True
    borrows_generators = True

    def __init__(
        self,
        needs: InputSpec,
        *,
        size: int | None = None,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: float = 0.5,
        augment: str = "rand-m9-mstd0.5-inc1",
        jitter: float = 0.3,
        erasing: float = 0.25,
        interpolation: str = "bicubic",
        crop: float = 0.875,
    ) -> None:
        super().__init__(needs, flip=flip)
        if interpolation not in RESAMPLE:
            raise ComponentError("There is no such interpolation.", got=interpolation, expected=", ".join(RESAMPLE))
        self.size = (size, size) if size is not None else needs.size or (224, 224)
        self.scale, self.ratio, self.crop = scale, ratio, crop
        self.interpolation, self.resample = interpolation, RESAMPLE[interpolation]
        self.everywhere, self.in_place = self._colours(augment, jitter, False), self._colours(augment, jitter, True)
        self.erasing = erasing

    def _colours(self, augment: str, jitter: float, in_place: bool) -> list[Callable[[Image.Image], Image.Image]]:
        from timm.data.auto_augment import rand_augment_transform
        from torchvision.transforms import ColorJitter

        if not augment:
            return [ColorJitter(jitter, jitter, jitter)] if jitter else []
        mean = tuple(min(255, round(255 * value)) for value in self.needs.mean)
        hparams = {"translate_const": int(min(self.size) * 0.45), "img_mean": mean, "interpolation": self.resample}
        try:
            policy = rand_augment_transform(augment, hparams)
        except (AssertionError, ValueError, KeyError, TypeError):
            what, expected = "This is no RandAugment policy.", "rand-mN-..., as timm writes them: rand-m9-mstd0.5-inc1"
            raise ComponentError(what, where="transform imagenet", got=repr(augment), expected=expected) from None
        if in_place:
            policy.ops = [op for op in policy.ops if not op.name.startswith(PLACES)]
            policy.choice_weights = None
        return [policy]

    def train(self, scene: TransformInput, rng: np.random.Generator) -> TransformInput:
        from timm.data.transforms import RandomResizedCropAndInterpolation

        with lent(rng):
            window = RandomResizedCropAndInterpolation.get_params(scene.image, self.scale, self.ratio)
            scene = resize(crop(scene, *window), *self.size, self.resample)
            if self.flip > 0 and bool(torch.rand(1) < self.flip) and may_flip(scene):
                scene = flip(scene)
            changes = self.in_place if scene.placed else self.everywhere
            return replace(scene, image=reduce(lambda image, change: change(image), changes, scene.image))

    def finish(self, pixels: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
        from timm.data.random_erasing import RandomErasing

        if not self.erasing:
            return pixels
        with lent(rng):
            erased = torch.from_numpy(pixels.copy())
            RandomErasing(self.erasing, mode="pixel", device="cpu")(erased)  # in place
        return erased.numpy()

    def evaluate(self, scene: TransformInput) -> TransformInput:
        tall, wide = (math.floor(side / self.crop) for side in self.size)
        height, width = scene.size
        # the smallest size of the picture's shape that covers the enlarged crop, in whole pixels
        narrow = height * wide >= width * tall
        covering = (int(wide * height / width), wide) if narrow else (tall, int(tall * width / height))
        scene = resize(scene, *covering, self.resample)
        top, left = (round((side - wanted) / 2) for side, wanted in zip(scene.size, self.size, strict=True))
        return crop(scene, top, left, *self.size)

    def steps(self) -> list[dict[str, Any]]:
        tall, wide = (math.floor(side / self.crop) for side in self.size)
        cover = {"step": "cover", "height": tall, "width": wide, "interpolation": self.interpolation}
        return [cover, {"step": "crop", "height": self.size[0], "width": self.size[1]}]
