"""Opens the pictures of examples, and locates a model's tokens on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlcli.data.images import load_image
from vlcli.data.pipeline import Pipeline
from vlcli.engine.bundle import Bundle
from vlcli.nn.batch import Batch
from vlcli.nn.layout import Layout

SHORT = 240
"""Small pictures are enlarged to this many pixels before anything is drawn on them."""


class Album:
    """The pictures of a pipeline's examples."""

    def __init__(self, data: Pipeline) -> None:
        self.files: dict[str, Path] = {}
        for reader in data.readers:
            self.files |= reader.image_files()

    def open(self, name: str) -> Image.Image:
        """Opens a picture by its id."""
        return load_image(self.files[name])


def token_boxes(layout: Layout, row: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Returns boxes (N, 4) in [0, 1] of a row's image tokens, and which tokens (N,) lie on the plane."""
    row = 0 if len(layout.valid) == 1 else row
    there = (layout.valid[row] & ~layout.special[row] & ~layout.centre[row, :, 0].isnan()).cpu()
    tokens = there.nonzero()[:, 0]  # (N,)
    if layout.boxes is not None:
        return layout.boxes[row].cpu()[tokens].numpy(), tokens.numpy()
    rows, columns = layout.grid or (1, 1)
    corner = layout.centre[row].cpu()[tokens].numpy()  # (N, 2) row, column
    size = np.array([rows, columns], np.float32)
    return np.concatenate([corner[:, ::-1] / size[::-1], (corner + 1)[:, ::-1] / size[::-1]], 1), tokens.numpy()


def scaled(boxes: NDArray[np.float32], picture: Image.Image) -> NDArray[np.float32]:
    """Scales boxes (N, 4) in [0, 1] to pixels of a picture."""
    return boxes * np.array([picture.width, picture.height] * 2, np.float32)


def enlarged(picture: Image.Image) -> Image.Image:
    """Enlarges a picture whose shorter side has less than :data:`SHORT` pixels."""
    scale = SHORT / min(picture.size)
    if scale <= 1:
        return picture
    return picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.LANCZOS)


def pieces(bundle: Bundle, batch: Batch) -> list[tuple[int, str]]:
    """Returns place and spelling of the first sentence's pieces, without class token and separators."""
    text: Any = batch.clean.text
    names, special = bundle.tokenizer.tokens(text.ids[0].tolist()), text.special[0].tolist()
    return [(place, name) for place, (name, off) in enumerate(zip(names, special, strict=True)) if not off]
