"""New pictures as a model reads them: decoded within bounds, their regions or concepts extracted on the fly."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
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

    A file is extracted on the fly, unless ``features`` holds its id. Any other string is an id in ``features``, else in
    ``trained``.

    Attributes:
        region_dim: width of a region's feature.
        features: the store of regions that the caller named.
        trained: the store of regions that the model was trained with, where it is still there.
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
        """Return pictures as the model reads them, under their ``names``; new ones are extracted together.

        Raises:
            DataError: a picture cannot be read, or is in no store.
            UsageError: the model reads regions, and their extractor is not known.
        """
        names = names or [name_of(picture, number) for number, picture in enumerate(pictures)]
        named = list(zip(names, pictures, strict=True))
        known = [self._known(picture, name) for name, picture in named]
        unknown = [one for one, image in zip(named, known, strict=True) if image is None]
        new = iter(self._new([(name, partial(open_picture, picture)) for name, picture in unknown]))
        return [next(new) if image is None else image for image in known]

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
        if store is None:
            expected = "load(..., features=STORE), or RegionFeatures(features, boxes) instead of a file"
            raise _no_store("region features", str(picture), expected)
        return self._stored(store, str(picture))

    def _stored(self, store: FeatureStore, picture: str) -> ImageSample:
        record = store.read(store.id_of(picture))
        self.check(record.features, record.boxes)
        image = ImageSample(record.id, record.size)
        fill_regions(image, record)
        if self.needs.concepts:
            named = self.features is not None or self.concepts is not None
            concepts = self.concepts if named else self.trained_concepts
            if concepts is None:
                raise _no_store("visual concepts", record.id, "load(..., features=[REGIONS, CONCEPTS])")
            image.concepts = concepts.read(record.id)
        return image

    def _new(self, pictures: list[Opener]) -> list[ImageSample]:
        if not pictures:
            return []
        if self.needs.regions:
            images = self.fresh.regions(pictures)
            for image in images:
                self.check(image.features, image.boxes)
        else:
            images = [read_picture(name, self.needs, self.transform, opened()) for name, opened in pictures]
        if self.needs.concepts:
            for image, concepts in zip(images, self.fresh.concepts(pictures), strict=True):
                image.concepts = concepts
        return images

    def check(self, features: Any, boxes: Any) -> None:
        """Raise a DataError where features are not (R, region_dim), or boxes not (R, 4)."""
        if features.shape != (*boxes.shape[:1], self.region_dim) or boxes.shape[1:] != (4,):
            got = f"features {features.shape}, boxes {boxes.shape}"
            expected = f"features (R, {self.region_dim}), boxes (R, 4) divided by width and height"
            raise DataError("These are not the regions the model reads.", got=got, expected=expected)


def _no_store(what: str, got: str, expected: str) -> UsageError:
    said = f"This model reads {what}, and no store of them was given."
    return UsageError(said, got=got, expected=expected, hint="make a store: vlcli extract")


def is_file(path: str | Path) -> bool:
    """Return whether there is such a file; False for a name that no file system takes."""
    try:
        return is_there(Path(path))
    except OSError:
        return False


def _holds(store: FeatureStore | None, picture: str | Path) -> bool:
    return store is not None and not store.missing([store.id_of(picture)])


def open_picture(picture: Picture) -> Image.Image:
    """Open a picture as upright 8-bit RGB. Raises DataError: it is none, not there, or larger than ``MAX_PIXELS``."""
    if not isinstance(picture, str | Path | Image.Image):
        expected, hint = "a file or a PIL image", "convert an array: PIL.Image.fromarray(ARRAY)"
        raise DataError("This is no picture.", got=type(picture).__name__, expected=expected, hint=hint)
    where = "image" if isinstance(picture, Image.Image) else shown(str(picture))[1:-1]
    if not isinstance(picture, Image.Image) and not is_file(picture):
        expected, hint = "the path of a picture", "check the path"
        raise DataError("There is no such picture.", where=where, expected=expected, hint=hint)
    try:
        if isinstance(picture, Image.Image):
            return _upright(picture)
        return open_image(Path(picture))
    except (BadImageError, OSError) as error:
        got = str(error) or type(error).__name__
        large = got.startswith("too large")
        hint = "make it smaller: a model sees some hundred pixels a side" if large else "open and save it again"
        raise DataError("The picture cannot be read.", where=where, got=got, hint=hint) from None


def _upright(image: Image.Image) -> Image.Image:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise BadImageError(f"too large: {width} x {height} pixels, at most {MAX_PIXELS} are decoded")
    try:
        return to_rgb(ImageOps.exif_transpose(image))
    except Exception as error:  # an image whose file is decoded only now may be damaged
        raise BadImageError(f"cannot be decoded: {error}") from None
