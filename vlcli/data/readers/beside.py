"""Base class of data sets with a file of boxes beside their own files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.readers.coco import CocoInstances
from vlcli.data.readers.split_file import SplitFileReader
from vlcli.images.boxes import BoxList


class BoxesBeside(SplitFileReader):
    """Base of readers whose pictures may have a COCO instances file of their own, one a split.

    Args:
        boxes: COCO instances file of the pictures, for regions at given boxes; None: the usual one, where it is there.

    Attributes:
        usual_boxes: its path under the root; ``{split}`` is filled in.
    """

    usual_boxes: ClassVar[str] = ""

    def __init__(self, root: Path, *, boxes: str | None = None, **options: Any) -> None:
        super().__init__(root, **options)
        self.box_file = boxes

    def boxes(self) -> dict[str, BoxList]:
        boxes: dict[str, BoxList] = {}
        for reader in self._instances():
            boxes |= reader.boxes()
        used = dict.fromkeys(name for example in self.examples() for name in example.images)
        return {name: boxes[name] for name in used if name in boxes}

    def class_names(self) -> list[str]:
        return next((reader.class_names() for reader in self._instances()), [])

    def class_ids(self) -> list[int]:
        return next((reader.class_ids() for reader in self._instances()), [])

    def attribute_names(self) -> list[str]:
        return next((reader.attribute_names() for reader in self._instances()), [])

    def _instances(self) -> Iterator[CocoInstances]:
        for file in self.first_file(self.box_file, (self.usual_boxes,)):
            if self.box_file is not None or file.is_file():
                reader = CocoInstances(self.root, file=str(file.absolute()), images=str(self.image_folder))
                reader.ids = self.ids
                yield reader
