"""New pictures as a model reads them: decoded within bounds, their regions or concepts extracted on the fly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from vlcli.data.inputs import fill_regions
from vlcli.data.pictures import read_picture
from vlcli.data.sample import ImageSample
from vlcli.data.transforms import Transform
from vlcli.errors import DataError, UsageError, shown
from vlcli.features import FeatureStore
from vlcli.features.concepts import ConceptStore
from vlcli.images.files import MAX_PIXELS, BadImageError, open_image, to_rgb
from vlcli.images.shards import is_there
from vlcli.nn.model import InputSpec
from vlcli.prediction.extracting import OnTheFly, Opener
from vlcli.prediction.records import Picture, RegionFeatures, name_of

__all__ = ["MAX_PIXELS", "PictureReader", "open_picture"]


@dataclass
class PictureReader:
    """Reads pictures as one model needs them.

    A file is extracted on the fly, unless a store that the caller named holds its id. Any other string is an id in a
    store: the one that the caller named, else the one that the model was trained with.

    Attributes:
        needs: what the model is fed.
        region_dim: width of the features that it reads.
        transform: how pictures become pixels.
        features: the store of regions that the caller named.
        concepts: the store of concepts that the caller named.
        trained: the store of regions that the model was trained with, where it is still there.
        trained_concepts: the same for concepts.
        fresh: extracts the regions and the concepts of new pictures.
    """

    needs: InputSpec
    region_dim: int
    transform: Transform | None = None
    features: FeatureStore | None = None
    concepts: ConceptStore | None = None
    trained: FeatureStore | None = None
    trained_concepts: ConceptStore | None = None
    fresh: OnTheFly = field(default_factory=OnTheFly)

    def read(self, pictures: Sequence[Picture], names: Sequence[str] = ()) -> list[ImageSample]:
        """Pictures as the model reads them; new ones are extracted together.

        Args:
            pictures: files, ids, open images or regions.
            names: what they are called; by default :func:`name_of`.

        Raises:
            DataError: a picture cannot be read, or is in no store.
            UsageError: the model reads regions, and nobody knows how to extract them.
        """
        names = names or [name_of(picture, place) for place, picture in enumerate(pictures)]
        found: list[ImageSample | None] = [self._known(*pair) for pair in zip(pictures, names, strict=True)]
        todo = [place for place, image in enumerate(found) if image is None]
        made = self._new([(names[place], partial(open_picture, pictures[place])) for place in todo])
        for place, image in zip(todo, made, strict=True):
            found[place] = image
        return [image for image in found if image is not None]

    def _known(self, picture: Picture, name: str) -> ImageSample | None:
        if isinstance(picture, RegionFeatures):
            features, boxes = np.asarray(picture.features, np.float32), np.asarray(picture.boxes, np.float32)
            self.check(features, boxes)
            return ImageSample(name, (1, 1), features, np.clip(boxes, 0, 1))
        if not self.needs.regions or isinstance(picture, Image.Image):
            return None
        if is_file(picture) and not _holds(self.features, picture):
            return None
        store = self.features if self.features is not None else self.trained
        if self.fresh.known and not _holds(store, picture):
            where, asked = shown(str(picture))[1:-1], "" if store is None else f", or an id in {store.where}"
            raise DataError("There is no such picture.", where=where, expected=f"a picture's file{asked}")
        return self._stored(str(picture))

    def _stored(self, picture: str) -> ImageSample:
        store = self.features if self.features is not None else self.trained
        if store is None:
            raise UsageError(
                "This model reads region features, and no store of them was given.",
                got=picture,
                expected="load(..., features=STORE), or RegionFeatures(features, boxes) instead of a file",
                hint="make a store: vlcli extract",
            )
        record = store.read(store.id_of(picture))
        self.check(record.features, record.boxes)
        image = ImageSample(record.id, record.size)
        fill_regions(image, record)
        if self.needs.concepts:
            image.concepts = self._stored_concepts(record.id)
        return image

    def _stored_concepts(self, name: str) -> dict[str, NDArray[Any]]:
        store = self.concepts if self.features is not None or self.concepts is not None else self.trained_concepts
        if store is None:
            raise UsageError(
                "This model reads visual concepts, and no store of them was given.",
                got=name,
                expected="load(..., features=[REGIONS, CONCEPTS])",
                hint="make a store: vlcli extract",
            )
        return store.read(name)

    def _new(self, pictures: list[Opener]) -> list[ImageSample]:
        if not pictures:
            return []
        needs = self.needs
        if needs.regions:
            found = self.fresh.regions(pictures)
            for image in found:
                assert image.features is not None
                assert image.boxes is not None
                self.check(image.features, image.boxes)
        else:
            found = [read_picture(name, needs, self.transform, opened()) for name, opened in pictures]
        if needs.concepts:
            for image, concepts in zip(found, self.fresh.concepts(pictures), strict=True):
                image.concepts = concepts
        return found

    def check(self, features: NDArray[Any], boxes: NDArray[Any]) -> None:
        """Refuse regions that the model cannot read.

        Raises:
            DataError: the shapes are wrong.
        """
        dim = self.region_dim
        if features.ndim != 2 or features.shape[1] != dim or boxes.shape != (len(features), 4):
            raise DataError(
                "These are not the regions the model reads.",
                got=f"features {features.shape}, boxes {boxes.shape}",
                expected=f"features (R, {dim}), boxes (R, 4) divided by width and height",
            )


def is_file(path: str | Path) -> bool:
    """Whether there is such a file; False for a name that no file system takes."""
    try:
        return is_there(Path(path))
    except OSError:
        return False


def _holds(store: FeatureStore | None, picture: str | Path) -> bool:
    return store is not None and not store.missing([store.id_of(picture)])


def open_picture(picture: Picture, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """A picture as upright 8-bit RGB.

    Args:
        picture: a file or an open image.
        max_pixels: larger ones are refused by their header, before anything is decoded.

    Raises:
        DataError: it is missing, unreadable or too large.
    """
    where = shown(str(picture))[1:-1] if isinstance(picture, str | Path) else "image"
    if isinstance(picture, str | Path) and not is_file(picture):
        raise DataError(
            "There is no such picture.", where=where, expected="the path of a picture", hint="check the path"
        )
    try:
        if isinstance(picture, Image.Image):
            return _upright(picture, max_pixels)
        assert isinstance(picture, str | Path)
        return open_image(Path(picture), max_pixels)
    except (BadImageError, OSError) as error:
        got = str(error) or type(error).__name__
        large = got.startswith("too large")
        hint = "make it smaller: a model sees some hundred pixels a side" if large else "open and save it again"
        raise DataError("The picture cannot be read.", where=where, got=got, hint=hint) from None


def _upright(image: Image.Image, max_pixels: int) -> Image.Image:
    width, height = image.size
    if width * height > max_pixels:
        raise BadImageError(f"too large: {width} x {height} pixels, at most {max_pixels} are decoded")
    try:
        return to_rgb(ImageOps.exif_transpose(image))
    except Exception as error:  # an image whose file is decoded only now may be damaged
        raise BadImageError(f"cannot be decoded: {error}") from None
