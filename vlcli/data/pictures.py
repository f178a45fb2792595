"""Pictures from files to arrays, with the boxes and label maps that belong to them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vlcli.data.columns.table import ColumnExamples
from vlcli.data.decoded import DecodedImages
from vlcli.data.files import index_images
from vlcli.data.images import load_image, load_labels, to_array
from vlcli.data.reader import Reader
from vlcli.data.reader_errors import share_id
from vlcli.data.sample import ImageSample
from vlcli.data.transforms import Transform, TransformInput, resize
from vlcli.images.boxes import BoxList
from vlcli.images.shards import is_there
from vlcli.nn.model import InputSpec
from vlcli.recipe.pictures import note_pictures


@dataclass
class Draw:
    """What one example's pictures share while a transform works on them.

    Attributes:
        rng: of (seed, epoch, example).
        text: the sentence, as the pictures so far have left it.
        pictures: how many there are.
        flipped: whether the only one was mirrored.
    """

    rng: np.random.Generator
    text: str | None
    pictures: int
    flipped: bool = False


class Pictures:
    """Where the pictures of some data sets lie, and how they become pixels.

    Args:
        readers: data sets.
        needs: what the model is fed.
        transform: None squashes.
    """

    def __init__(self, readers: Sequence[Reader], needs: InputSpec, transform: Transform | None) -> None:
        self.needs, self.transform = needs, transform
        self.files: Mapping[str, Path] = _image_files(readers) if needs.pixels else {}
        self._decoded = DecodedImages(len(self.files) if isinstance(self.files, dict) else 0)
        boxes = needs.pixels and needs.boxes and not needs.regions
        self._boxes: dict[str, BoxList] = {}
        self._maps: dict[str, Path] = {}
        for reader in readers:
            self._boxes.update(reader.boxes() if boxes else {})
            self._maps.update(reader.label_maps() if needs.pixels and needs.label_maps else {})
        note_pictures(_paths(readers) if isinstance(self.files, _Located) else self.files.values())
        note_pictures(self._maps.values())

    def fill(self, image: ImageSample, draw: Draw | None, picture: Image.Image | None = None) -> None:
        """Read the picture of ``image``; with ``draw`` as a training picture, else as one to be scored.

        Args:
            image: what is filled.
            draw: what the pictures of one training example share.
            picture: RGB, already open; None: the file of ``image``.
        """
        given = self._boxes.get(image.key)
        if picture is None:
            path, raw = self.files[image.key], None if given is None else given.size
            picture = self._decoded.get(image.key, lambda: load_image(path, raw))
        image.size = (picture.height, picture.width)
        given = None if given is None else given.clipped(image.size).with_area()
        boxes = None if given is None else given.boxes
        labels = load_labels(self._maps[image.key], image.size) if image.key in self._maps else None
        scene = self._transformed(TransformInput(picture, boxes, labels=labels), draw)
        image.size = image.size if draw is None else scene.size
        image.pixels = self._pixels(scene, draw)
        if scene.labels is not None:
            nearest = resize(replace(scene, boxes=None), *image.pixels.shape[1:]).labels
            image.label_map = np.asarray(nearest, np.int32)
        if given is not None and scene.boxes is not None:
            image.boxes = normalised(scene.boxes, scene.size)
            image.fields = _fields(given, scene)

    def _transformed(self, scene: TransformInput, draw: Draw | None) -> TransformInput:
        if self.transform is None:
            return scene
        if draw is None:
            return self.transform.evaluate(scene)
        scene = self.transform.train(replace(scene, text=draw.text, pictures=draw.pictures), draw.rng)
        draw.text, draw.flipped = scene.text, scene.flipped and draw.pictures == 1
        return scene

    def _pixels(self, scene: TransformInput, draw: Draw | None) -> NDArray[np.float32]:
        wants = self.needs
        sized = self.transform is not None and self.transform.sizes
        short, long = (0, 0) if sized else (wants.short, wants.long)
        pixels = to_array(scene.image, wants.size, wants.mean, wants.std, short, long)
        return pixels if draw is None or self.transform is None else self.transform.finish(pixels, draw.rng)


def read_picture(name: str, needs: InputSpec, transform: Transform | None, picture: Image.Image) -> ImageSample:
    """One open picture (RGB) as a model scores it."""
    image = ImageSample(name, (0, 0))
    Pictures([], needs, transform).fill(image, None, picture)
    return image


def normalised(boxes: NDArray[Any], size: tuple[int, int]) -> NDArray[np.float32]:
    """Pixels to [0, 1]: (R, 4)."""
    height, width = size
    scale = np.array([width, height, width, height], np.float32)
    made: NDArray[np.float32] = np.clip(np.asarray(boxes, np.float32) / scale, 0, 1)
    return made


def _fields(given: BoxList, scene: TransformInput) -> dict[str, NDArray[Any]]:
    """The labels of the boxes that are left."""
    here = slice(None) if scene.kept is None else scene.kept
    labels = {"classes": given.classes, "attributes": given.attributes}
    return {name: array[here] for name, array in labels.items() if array is not None}


class _Located(Mapping[str, Path]):
    """Files of pictures, each looked up when it is asked for: for data sets with too many to list.

    Args:
        readers: data sets whose pictures they are.
    """

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
    if any(isinstance(reader.examples(), ColumnExamples) for reader in readers):
        return _Located(readers)
    found: dict[str, Path] = {}
    for reader in readers:
        for name, path in reader.image_files().items():
            if found.setdefault(name, path) != path:
                raise share_id(name, found[name], path, reader.ids, reader.label)
    return found


def _paths(readers: Sequence[Reader]) -> Iterator[Path]:
    """The files that the annotations name, or else those of the image folder: no example is made for it."""
    for reader in readers:
        yield from reader._paths.values() or itertools.chain(*index_images(reader.image_folder).values())
