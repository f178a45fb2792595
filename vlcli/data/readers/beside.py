"""Given boxes that lie beside a data set's own files, in COCO's form."""

from __future__ import annotations

from typing import ClassVar

from vlcli.data.reader import Reader
from vlcli.data.readers.coco import CocoInstances
from vlcli.images.boxes import BoxList


class BoxesBeside(Reader):
    """A data set whose pictures may have an instances file of their own, a split each."""

    usual_boxes: ClassVar[str] = ""
    """Where they lie under the root where nothing else is said; ``{split}`` is filled in."""
    box_file: str | None = None

    def boxes(self) -> dict[str, BoxList]:
        """Given boxes of the pictures, where there is a file of them."""
        found: dict[str, BoxList] = {}
        for reader in self._instances():
            found |= reader.boxes()
        used = dict.fromkeys(name for example in self.examples() for name in example.images)
        return {name: found[name] for name in used if name in found}

    def class_names(self) -> list[str]:
        """The categories of the given boxes."""
        return next((reader.class_names() for reader in self._instances()), [])

    def class_ids(self) -> list[int]:
        """The categories' own ids."""
        return next((reader.class_ids() for reader in self._instances()), [])

    def attribute_names(self) -> list[str]:
        """The attributes of the given boxes."""
        return next((reader.attribute_names() for reader in self._instances()), [])

    def _instances(self) -> list[CocoInstances]:
        files = self.first_file(self.box_file, (self.usual_boxes,))
        if self.box_file is None:
            files = [file for file in files if file.is_file()]
        found = [CocoInstances(self.root, file=str(file.absolute()), images=str(self.image_folder)) for file in files]
        for reader in found:
            reader.ids = self.ids
        return found
