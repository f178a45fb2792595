"""Pictures as arrays: safe decoding, resizing, normalising."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlcli.errors import DataError
from vlcli.features.images import BadImageError, open_image

Transform = Callable[
    [Image.Image, NDArray[np.float32] | None, str | None, np.random.Generator],
    tuple[Image.Image, NDArray[np.float32] | None, str | None],
]
"""A joint change of a picture, its boxes (R, 4) in pixels, and the sentence (a flip mirrors the boxes and swaps left
and right); boxes keep their number and order."""


def load_image(path: Path, raw: tuple[int, int] | None = None) -> Image.Image:
    """A picture as RGB, turned as its EXIF says.

    Args:
        path: the file.
        raw: height and width that its boxes were measured in; where those are the unturned picture's, it is not turned.

    Raises:
        DataError: missing, empty, truncated, no picture, or larger than a picture can sensibly be.
    """
    try:
        return open_image(path, raw=raw)
    except FileNotFoundError:
        raise DataError("The picture does not exist.", where=str(path), hint="check `root` and `images`") from None
    except (BadImageError, OSError) as error:
        got = str(error) or type(error).__name__
        raise DataError(
            "The picture cannot be read.",
            where=str(path),
            got=got,
            hint="replace the file, or leave it out: take=not-in:FILE lists images to leave out",
        ) from None


def to_array(
    image: Image.Image,
    size: tuple[int, int] | None,
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
) -> NDArray[np.float32]:
    """A picture as (3, H, W) float32, resized to ``size`` (height, width) where given, then normalised.

    Args:
        image: RGB.
        size: height and width; None keeps the picture's own.
        mean: per channel, of values in [0, 1].
        std: per channel.
    """
    if size is not None and image.size != (size[1], size[0]):
        image = image.resize((size[1], size[0]), Image.Resampling.BICUBIC)
    values = np.asarray(image, np.float32) / np.float32(255)  # (H, W, 3)
    values = (values - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
    return np.ascontiguousarray(values.transpose(2, 0, 1))
