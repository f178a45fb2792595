"""Reads pictures into arrays, with their boxes and label maps."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlcli.data.checks import share_id
from vlcli.data.columns.table import ColumnExamples
from vlcli.data.files import index_images
from vlcli.data.images import load_image, load_labels, to_array
from vlcli.data.reader import Reader
from vlcli.data.sample import ImageSample
from vlcli.data.transforms import Transform, TransformInput, resize
from vlcli.images.shards import is_there
from vlcli.nn.model import InputSpec
from vlcli.recipe.pictures import note_pictures

# Bytes of decoded images that one process keeps.
LIMIT = 256 * 2**20

# Bytes that Pillow takes for a pixel of an RGB image.
PIXEL = 4


class DecodedImages:
    """Images decoded before, where all ``count`` images of a data set fit into ``limit`` bytes.

    Small models on small images spend as long on decoding them as on training. The first image decides: if ``count``
    images of its size take more than ``limit``, none is kept, since most would be decoded again in every epoch. Where
    later images are larger, none is added once ``limit`` is reached.
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


@dataclass
class Draw:
    """State that all pictures of one example share while a transform changes them.

    Attributes:
        rng: of (seed, epoch, example).
        text: the sentence, as the transform left it so far.
        flipped: whether the only picture was mirrored.
    """

    rng: np.random.Generator
    text: str | None
    pictures: int
    flipped: bool = False


class Pictures:
    """The picture files of data sets and their conversion to pixels; without a transform, pictures are squashed."""

    def __init__(self, readers: Sequence[Reader], needs: InputSpec, transform: Transform | None) -> None:
        self.needs, self.transform = needs, transform
        self.files: Mapping[str, Path] = _image_files(readers) if needs.pixels else {}
        self._decoded = DecodedImages(len(self.files) if isinstance(self.files, dict) else 0)
        boxes, maps = needs.pixels and needs.boxes and not needs.regions, needs.pixels and needs.label_maps
        self._boxes = {name: one for reader in readers if boxes for name, one in reader.boxes().items()}
        self._maps = {name: path for reader in readers if maps for name, path in reader.label_maps().items()}
        paths: Iterable[Path] = self.files.values()
        if isinstance(self.files, _Located):  # the files that annotations name, else those of the folder
            listed = (one._paths.values() or chain(*index_images(one.image_folder).values()) for one in readers)
            paths = chain.from_iterable(listed)
        note_pictures(chain(paths, self._maps.values()))

    def fill(self, image: ImageSample, draw: Draw | None, picture: Image.Image | None = None) -> None:
        """Read the picture of ``image``, or take ``picture`` (RGB); with ``draw`` for training, else for evaluation."""
        annotated = self._boxes.get(image.key)
        if picture is None:
            path, raw = self.files[image.key], None if annotated is None else annotated.size
            picture = self._decoded.get(image.key, lambda: load_image(path, raw))
        image.size = (picture.height, picture.width)
        annotated = None if annotated is None else annotated.clipped(image.size).with_area()
        boxes = None if annotated is None else annotated.boxes
        labels = load_labels(self._maps[image.key], image.size) if image.key in self._maps else None
        scene = self._transformed(TransformInput(picture, boxes, labels=labels), draw)
        image.size = image.size if draw is None else scene.size
        sides = () if self.transform is not None and self.transform.sizes else (self.needs.short, self.needs.long)
        pixels = to_array(scene.image, self.needs.size, self.needs.mean, self.needs.std, *sides)
        image.pixels = pixels if draw is None or self.transform is None else self.transform.finish(pixels, draw.rng)
        if scene.labels is not None:
            nearest = resize(replace(scene, boxes=None), *image.pixels.shape[1:]).labels
            image.label_map = np.asarray(nearest, np.int32)
        if annotated is not None and scene.boxes is not None:
            image.boxes = normalised(scene.boxes, scene.size)
            kept = slice(None) if scene.kept is None else scene.kept
            fields = {"classes": annotated.classes, "attributes": annotated.attributes}
            image.fields = {name: array[kept] for name, array in fields.items() if array is not None}

    def _transformed(self, scene: TransformInput, draw: Draw | None) -> TransformInput:
        if self.transform is None:
            return scene
        if draw is None:
            return self.transform.evaluate(scene)
        scene = self.transform.train(replace(scene, text=draw.text, pictures=draw.pictures), draw.rng)
        draw.text, draw.flipped = scene.text, scene.flipped and draw.pictures == 1
        return scene


def read_picture(name: str, needs: InputSpec, transform: Transform | None, picture: Image.Image) -> ImageSample:
    """Convert one open picture (RGB) to a sample for evaluation."""
    image = ImageSample(name, (0, 0))
    Pictures([], needs, transform).fill(image, None, picture)
    return image


def normalised(boxes: NDArray[Any], size: tuple[int, int]) -> NDArray[np.float32]:
    """Divide boxes in pixels (R, 4) by width and height, clipped to [0, 1]."""
    scale = np.array(size[::-1] * 2, np.float32)  # width, height, width, height
    shares: NDArray[np.float32] = np.clip(np.asarray(boxes, np.float32) / scale, 0, 1)
    return shares


class _Located(Mapping[str, Path]):
    def __init__(self, readers: Sequence[Reader]) -> None:
        self.readers = readers

    def __getitem__(self, name: str) -> Path:
        readers = [reader for reader in self.readers if name in reader._paths]
        paths = [reader.locate(name) for reader in readers or self.readers]
        if not readers:  # no annotation names its file
            return next((path for path in paths if is_there(path)), paths[0])
        other = next((path for path in paths if path != paths[0]), None)
        if other is not None:
            raise share_id(name, paths[0], other, readers[0].ids, readers[0].label)
        return paths[0]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for reader in self.readers for name in reader.image_files()))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _image_files(readers: Sequence[Reader]) -> Mapping[str, Path]:
    columns = any(isinstance(reader.examples(), ColumnExamples) for reader in readers)
    return _Located(readers) if columns else collect_images(readers)


def collect_images(readers: Sequence[Reader]) -> dict[str, Path]:
    """Return the image files of all data sets by id, in order. Raises DataError: two files answer to one id."""
    files: dict[str, Path] = {}
    for reader in readers:
        for name, path in reader.image_files().items():
            if files.setdefault(name, path) != path:
                raise share_id(name, files[name], path, reader.ids, reader.label)
    return files
