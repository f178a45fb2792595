"""Keeps the decoded images of small data sets in memory."""

from __future__ import annotations

from collections.abc import Callable

from PIL import Image

# Bytes of decoded images that one process keeps.
LIMIT = 256 * 2**20

# Bytes that Pillow takes for a pixel of an RGB image.
PIXEL = 4


class DecodedImages:
    """Images that have been decoded before, where all images of a data set fit in memory.

    Small models on small images spend as long on decoding them as on training. The first image decides: if ``count``
    images of its size take more than ``limit`` bytes, no image is kept, since most would be decoded again in every
    epoch anyway. Where later images are larger than the first, none is added once ``limit`` is reached.

    Args:
        count: how many images the data set has; 0 keeps none.
        limit: bytes.
    """

    def __init__(self, count: int, limit: int = LIMIT) -> None:
        self.count, self.limit = count, limit
        self._kept: dict[str, Image.Image] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: str, decode: Callable[[], Image.Image]) -> Image.Image:
        """Return a copy of the image called ``name``, or call ``decode``. The caller may change the result."""
        if (kept := self._kept.get(name)) is not None:
            return kept.copy()
        image = decode()
        size = PIXEL * image.width * image.height
        if not self._kept and size * self.count > self.limit:
            self.count = 0
        if self.count and self._bytes + size <= self.limit:
            self._kept[name] = image.copy()
            self._bytes += size
        return image

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_kept": {}, "_bytes": 0}
