"""What drawings on photographs share: the files of examples, and where a model's image tokens lie on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlcli.data.images import load_image
from vlcli.data.pipeline import Pipeline
from vlcli.nn.layout import Layout

SHORT = 240
"""Small pictures are enlarged to this many pixels before anything is drawn on them."""


class Album:
    """The pictures of a pipeline's examples.

    Args:
        data: whose readers know the files.
    """

    def __init__(self, data: Pipeline) -> None:
        self.files: dict[str, Path] = {}
        for reader in data.readers:
            self.files |= reader.image_files()

    def open(self, name: str) -> Image.Image:
        """A picture by its id.

        Raises:
            DataError: its file is missing or damaged.
        """
        return load_image(self.files[name])


def token_boxes(layout: Layout, row: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Boxes (N, 4) in [0, 1] of a row's image tokens, and which tokens they are; those off the plane are left out."""
    row = 0 if len(layout.valid) == 1 else row
    there = (layout.valid[row] & ~layout.special[row] & ~layout.centre[row, :, 0].isnan()).cpu()
    places = there.nonzero()[:, 0]
    if layout.boxes is not None:
        return layout.boxes[row].cpu()[places].numpy(), places.numpy()
    rows, columns = layout.grid or (1, 1)
    corner = layout.centre[row].cpu()[places].numpy()  # (N, 2) row, column
    size = np.array([rows, columns], np.float32)
    return np.concatenate([corner[:, ::-1] / size[::-1], (corner + 1)[:, ::-1] / size[::-1]], 1), places.numpy()


def scaled(boxes: NDArray[np.float32], picture: Image.Image) -> NDArray[np.float32]:
    """Boxes in [0, 1] as pixels of a picture."""
    return boxes * np.array([picture.width, picture.height] * 2, np.float32)


def enlarged(picture: Image.Image) -> Image.Image:
    """A picture whose shorter side has at least :data:`SHORT` pixels."""
    scale = SHORT / min(picture.size)
    if scale <= 1:
        return picture
    return picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.LANCZOS)
