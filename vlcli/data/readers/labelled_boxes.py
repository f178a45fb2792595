"""Base of readers of labelled boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
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

    Args:
        empty: keep images without boxes too.
    """

    def __init__(self, root: Path, *, empty: bool = False, **options: Any) -> None:
        super().__init__(root, **options)
        self.empty = empty

    def annotated(self) -> Iterator[tuple[str, Labelled]]:
        """Yield image id and boxes of each image; called by :meth:`read`."""
        raise NotImplementedError(f"{type(self).__name__} reads no boxes")

    def names(self) -> list[str]:
        """Return the classes, in the order of their numbers; called by :meth:`read`."""
        raise NotImplementedError(f"{type(self).__name__} knows no classes")

    def read(self) -> list[Example]:
        self._classes, self._labelled = self.names(), {}
        for image, labelled in self.annotated():
            kept = [(label, box) for label, box in labelled if box[2] > box[0] and box[3] > box[1]]
            if len(kept) < len(labelled):
                self.left_out["boxes without area"] += len(labelled) - len(kept)
            if kept or self.empty:
                self._labelled[image] = kept
            else:
                self.left_out["images without boxes (empty: true keeps them)"] += 1
        return [Example(image, None, [image]) for image in self._labelled]

    def boxes(self) -> dict[str, BoxList]:
        numbers = {name: number for number, name in enumerate(self.class_names())}
        box_lists = {}
        for example in self.examples():
            rows = self._labelled[example.key]
            classes = [label if isinstance(label, int) else numbers[label] for label, _ in rows]
            boxes = np.array([box for _, box in rows], np.float32).reshape(-1, 4) * self.scale(example.key)
            box_lists[example.key] = BoxList(boxes, classes=np.array(classes, np.int64))
        return box_lists

    def scale(self, image: str) -> Any:
        """Return the factor that turns the boxes of an image into pixels; called by :meth:`boxes`."""
        return 1.0

    def class_names(self) -> list[str]:
        self.examples()
        return self._classes
