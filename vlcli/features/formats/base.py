"""Defines the base class of other projects' formats of region features (tsv, npz ...), read one picture at a time."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from vlcli.errors import DataError
from vlcli.features.schema import DEFAULT_SET, Record
from vlcli.images.boxes import by_number, image_id, trailing_number
from vlcli.images.files import BadImageError, read_size

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")


@dataclass(frozen=True)
class ForeignImage:
    """One image of a foreign file.

    Attributes:
        id: the image's name in the file; empty where the file is damaged.
        where: file and line, for messages.
        decode: makes the record; raises ValueError or KeyError for a fault.
    """

    id: str
    where: str
    decode: Callable[[], Record]


class ImageNames:
    """Names and sizes of images for files that number images, or lack their sizes.

    ``source`` is a folder of pictures, or a JSON file (COCO's) with ``images`` that have ``file_name``, ``width`` and
    ``height``; DataError: neither.
    """

    def __init__(self, source: str | Path) -> None:
        self.source = Path(source)
        # File of each image of a folder, or size of each image that a file lists.
        self._images: dict[str, Path | tuple[int, int]] = {}
        if self.source.is_dir():
            files = sorted(path for path in self.source.rglob("[!.]*") if path.suffix.lower() in PICTURES)
            self._images.update((image_id(path), path) for path in files)
        else:
            self._images.update(_listed_sizes(self.source))
        self._numbered = by_number(self._images)

    def find(self, name: str) -> str | None:
        """Return an image's full name, by that or by the number that it alone ends in; None where it is missing."""
        return name if name in self._images else self._numbered.get(trailing_number(name))

    def size(self, name: str) -> tuple[int, int]:
        """Return height and width of an image; ValueError: it is missing, or its file cannot be read."""
        known = self.find(name)
        if known is None:
            raise ValueError(f"its size is unknown: {self.source} has no such picture, or several")
        image = self._images[known]
        try:
            return read_size(image) if isinstance(image, Path) else image
        except BadImageError as error:
            raise ValueError(f"its size is unknown: {image}: {error}") from None


def _listed_sizes(source: Path) -> dict[str, tuple[int, int]]:
    try:
        rows = json.loads(source.read_text(encoding="utf-8-sig"))
        rows = rows["images"] if isinstance(rows, dict) else rows
        return {image_id(row["file_name"]): (int(row["height"]), int(row["width"])) for row in rows}
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        what, got = "the sizes of the pictures cannot be read", f"{type(error).__name__}: {error}"
        expected = "a folder of pictures, or a JSON file whose `images` have file_name, width and height"
        raise DataError(what, where=str(source), got=got, expected=expected) from None


@dataclass
class FormatOptions:
    """Further inputs of a format: a second file with the ``boxes``, names and sizes of images, and words.

    ``vocabulary`` has the words in the order of the concepts' numbers.
    """

    boxes: Path | None = None
    pictures: ImageNames | None = None
    vocabulary: Path | None = None


class Format(ABC):
    """Base class of formats.

    Attributes:
        about: one line for ``vlcli ls formats``.
        source: what the user names, for messages.
        folder: whether the source may be a folder.
        prefix: whether the source may be the prefix of several files.
        set: the box set by default.
        provenance: of the imported records.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    source: ClassVar[str] = "a file"
    folder: ClassVar[bool] = False
    prefix: ClassVar[bool] = False
    set: ClassVar[str] = DEFAULT_SET
    provenance: ClassVar[dict[str, Any]] = {}

    @abstractmethod
    def entries(self, source: Path, options: FormatOptions) -> Iterator[ForeignImage]:
        """Yield the images of ``source``, in its order; called once per import.

        Args:
            source: the file, folder or prefix that the user names.
            options: the further files that the user names.

        Returns:
            The images; only those are decoded that the store lacks.

        Raises:
            DataError: the source is not of this format at all.
        """
        raise NotImplementedError

    def facts(self, source: Path, options: FormatOptions) -> dict[str, Any]:
        """Return provenance beside :attr:`provenance`; called once, before the import.

        Args:
            source: the file, folder or prefix that the user names.
            options: the further files that the user names.

        Returns:
            Plain data, the same when a second file is added to the store.
        """
        return {}

    def count(self, source: Path) -> int | None:
        """Return the number of images; called once, for the progress bar.

        Args:
            source: the file, folder or prefix that the user names.

        Returns:
            The number; None where it is not quickly known.
        """
        return None


def size_facts(options: FormatOptions, otherwise: str = "extent of the boxes") -> dict[str, Any]:
    """Return provenance on the sizes, for a format without sizes."""
    return {"sizes": "pictures" if options.pictures else otherwise}


def named_size(name: str, pictures: ImageNames | None, corner: tuple[float, float]) -> tuple[int, int]:
    """Return height and width of an image: from the pictures, else the extent of its boxes (``corner``: x and y)."""
    if pictures is not None:
        return pictures.size(name)
    return max(1, -int(-corner[1] // 1)), max(1, -int(-corner[0] // 1))
