"""Keeps the pictures of the page: checked before they are decoded, within bounds of memory."""

import io
import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from PIL import Image

from vlcli.data.sample import ImageSample
from vlcli.errors import DataError
from vlcli.images.files import BadImageError, open_image_bytes

_PREVIEW = 1200  # longest side in pixels of the copy that the page shows
KEPT, KEPT_BYTES = 200, 300 * 2**20
"""Pictures that are kept, and the bytes of their files and copies altogether."""


@dataclass(eq=False)
class Upload:
    """One picture that the page works on.

    Attributes:
        key: by which the page names it.
        size: width and height in pixels, upright.
        preview: a JPEG for the page.
        token: replaces the picture in requests to the model, see :class:`Remembered`.
        sample: the picture as the model has read it.
    """

    key: str
    data: bytes
    size: tuple[int, int]
    preview: bytes
    token: Image.Image = field(default_factory=lambda: Image.new("RGB", (1, 1)), repr=False)
    sample: ImageSample | None = field(default=None, repr=False)


class Uploads:
    """The pictures of all who have the page open; the least recently used one goes first.

    Pictures of more than ``max_pixels`` are refused by their header.
    """

    def __init__(self, max_pixels: int) -> None:
        self.max_pixels = max_pixels
        self._kept: OrderedDict[str, Upload] = OrderedDict()
        self._lock, self.decoding = threading.Lock(), threading.Lock()

    def add(self, data: bytes, name: str = "the picture") -> Upload:
        """Check and keep a picture; DataError: no picture, damaged, or too large."""
        with self.decoding:  # one at a time: a large picture takes some hundred megabytes
            image = self.decoded(data, name)
            upload = Upload(secrets.token_urlsafe(12), data, image.size, preview(image, _PREVIEW))
        with self._lock:
            self._kept[upload.key] = upload
            while len(self._kept) > KEPT or (len(self._kept) > 1 and self._bytes() > KEPT_BYTES):
                self._kept.popitem(last=False)
        return upload

    def decoded(self, data: bytes, name: str = "the picture") -> Image.Image:
        """Return a picture's pixels, upright 8-bit RGB; DataError: no picture, damaged, or too large."""
        try:
            return open_image_bytes(data, self.max_pixels)
        except BadImageError as error:
            large = str(error).startswith("too large")
            hint = "make it smaller: a model sees some hundred pixels a side" if large else "save it as JPEG or PNG"
            raise DataError("The picture cannot be used.", where=name, got=str(error), hint=hint) from None

    def get(self, keys: Sequence[str]) -> list[Upload]:
        """Return the pictures of these keys; DataError: one is no longer kept."""
        with self._lock:
            missing = [key for key in keys if key not in self._kept]
            if missing:
                raise DataError("A picture is no longer kept.", got=missing[0][:40], hint="drop it on the page again")
            for key in keys:
                self._kept.move_to_end(key)
            return [self._kept[key] for key in keys]

    def of_token(self, token: object) -> Upload | None:
        with self._lock:
            return next((upload for upload in self._kept.values() if upload.token is token), None)

    def _bytes(self) -> int:
        return sum(len(upload.data) + len(upload.preview) for upload in self._kept.values())


def preview(image: Image.Image, side: int) -> bytes:
    """Return a JPEG with at most ``side`` pixels a side."""
    small = image.copy()
    small.thumbnail((side, side))
    out = io.BytesIO()
    small.save(out, "JPEG", quality=88)
    return out.getvalue()


class Remembered:
    """A ``vlcli.prediction.pictures.PictureReader`` that reads each upload once: further questions extract nothing."""

    def __init__(self, reader: Any, uploads: Uploads) -> None:
        self._reader, self._uploads = reader, uploads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def read(self, pictures: Sequence[Any], names: Sequence[str] = ()) -> list[ImageSample]:
        samples: list[ImageSample] = []
        for picture, name in zip(pictures, names or [f"image-{n}" for n in range(len(pictures))], strict=True):
            upload = self._uploads.of_token(picture)
            if upload is None:
                samples += self._reader.read([picture], [name])
                continue
            if upload.sample is None:
                (upload.sample,) = self._reader.read([self._uploads.decoded(upload.data)], [upload.key])
            samples.append(replace(upload.sample, key=name))
        return samples
