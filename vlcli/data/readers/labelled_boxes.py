"""Base of readers of labelled boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vlcli.data.reader import Reader
from vlcli.data.sample import Example
from vlcli.images.boxes import BoxList

Labelled = Sequence[tuple[str | int, list[float]]]
"""Boxes of one image: class (name or number) and x1, y1, x2, y2."""


class LabelledBoxes(Reader):
    """Base of readers of boxes, one example an image; subclasses define :meth:`annotated` and :meth:`names`.

    Boxes without area are left out and counted; so are images without boxes, unless ``empty`` keeps them.
    """

    empty: bool = False

    def annotated(self) -> Iterator[tuple[str, Labelled]]:
        """Image id and boxes of each image."""
        raise NotImplementedError(f"{type(self).__name__} reads no boxes")

    def names(self) -> list[str]:
        """The classes, in the order of their numbers."""
        raise NotImplementedError(f"{type(self).__name__} knows no classes")

    def read(self) -> list[Example]:
        """One example per image that has a box; its boxes are in ``boxes()``."""
        self._classes, self._labelled = self.names(), {}
        for image, found in self.annotated():
            kept = [(label, box) for label, box in found if box[2] > box[0] and box[3] > box[1]]
            if len(kept) < len(found):
                self.left_out["boxes without area"] += len(found) - len(kept)
            if kept or self.empty:
                self._labelled[image] = kept
            else:
                self.left_out["images without boxes (empty: true keeps them)"] += 1
        return [Example(image, None, [image]) for image in self._labelled]

    def boxes(self) -> dict[str, BoxList]:
        """Boxes of the chosen images by image id."""
        number = {name: place for place, name in enumerate(self.class_names())}
        found = {}
        for example in self.examples():
            rows = self._labelled[example.key]
            classes = [label if isinstance(label, int) else number[label] for label, _ in rows]
            boxes = np.array([box for _, box in rows], np.float32).reshape(-1, 4) * self.scale(example.key)
            found[example.key] = BoxList(boxes, classes=np.array(classes, np.int64))
        return found

    def scale(self, image: str) -> Any:
        """What the boxes of an image are multiplied by to be in pixels."""
        return 1.0

    def class_names(self) -> list[str]:
        """The classes, in the order of their numbers."""
        self.examples()
        return self._classes
