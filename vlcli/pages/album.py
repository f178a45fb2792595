"""Makes thumbnails of pictures as JPEG inside a page: each picture once, however often it is shown."""

import base64
import io
from pathlib import Path
from typing import NamedTuple

from vlcli.data.images import load_image
from vlcli.errors import VlcliError

SIDE, QUALITY = 320, 84
"""Longer side of a thumbnail in pixels, and the quality of its JPEG."""
# What all thumbnails of a page may take, before they are written as text
MOST_BYTES = 5_000_000


class Thumbnail(NamedTuple):
    """A picture of a page: width and height of the thumbnail, (height, width) of the picture, and a data URI."""

    id: str
    width: int
    height: int
    size: tuple[int, int]
    uri: str


class Thumbnails:
    """The pictures of one page, up to ``most`` bytes of JPEG."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.by_path: dict[Path, Thumbnail | None] = {}
        self.faults: dict[str, None] = {}
        self.left, self.full = most, False

    @property
    def all(self) -> list[Thumbnail]:
        return [thumbnail for thumbnail in self.by_path.values() if thumbnail is not None]

    @property
    def told(self) -> list[str]:
        """Up to ten pictures that could not be read, and whether some were left out."""
        left_out = ["Some pictures were left out: the page would be too large."] if self.full else []
        return [*list(self.faults)[:10], *left_out]

    def of(self, path: Path) -> Thumbnail | None:
        """Return the thumbnail of a file; None where it cannot be read or there is no room left (see ``faults``)."""
        if path not in self.by_path:
            self.by_path[path] = self._make(path)
        return self.by_path[path]

    def _make(self, path: Path) -> Thumbnail | None:
        if self.left <= 0:
            self.full = True
            return None
        try:
            picture = load_image(path)
        except VlcliError as error:
            self.faults[f"{error.what} {error.where}"] = None
            return None
        size = (picture.height, picture.width)
        picture.thumbnail((SIDE, SIDE))
        content = io.BytesIO()
        small = max(picture.size) <= SIDE // 2  # artefacts show where every pixel counts
        picture.save(content, "JPEG", quality=95 if small else QUALITY, subsampling=0 if small else -1)
        self.left -= len(content.getvalue())
        uri = "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode()
        return Thumbnail(f"p{len(self.by_path)}", picture.width, picture.height, size, uri)
