"""The regions of all pictures of a batch, read from the store in one call into padded arrays."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vlcli.data.sample import ImageSample
from vlcli.features import FeatureStore
from vlcli.nn.batch import Regions

FILLS = {"classes": -1, "class_scores": 0, "attributes": -1, "attribute_scores": 0, "class_probs": 0}
"""Fields of regions in a batch, and their values at padding."""
_TEXTS = ("box_ids",)


class RegionTable:
    """The regions of several pictures.

    The table has no references to the pictures made from it: in a reference cycle, the arrays would be freed only by
    Python's cyclic garbage collector.

    Args:
        store: the feature store.
        names: the pictures, without duplicates.
        fields: the fields to read besides features and boxes.
        multiple: the padded number of regions R is rounded up to a multiple of this number.

    Raises:
        DataError: the store lacks a picture, or a record is damaged.
    """

    def __init__(self, store: FeatureStore, names: Sequence[str], fields: Collection[str], multiple: int = 1) -> None:
        read = [name for name in fields if name not in _TEXTS]
        found = store.read_batch(names, ("features", "boxes", *read))
        self.mask, self.sizes = found.pop("mask"), found.pop("sizes")  # (M, R), (M, 2)
        width = -(-max(self.mask.shape[1], 1) // multiple) * multiple
        if width != self.mask.shape[1]:
            found = {name: _widened(array, width) for name, array in found.items()}
            self.mask = _widened(self.mask, width)
        self.features = np.asarray(found["features"], np.float32)  # (M, R, D)
        self.boxes = _shares(found["boxes"], self.sizes)
        self.fields = {name: _field(found, name, ~self.mask) for name in FILLS if _source(found, name) in found}
        texts = "box_ids" in fields
        self.box_ids = [_texts(store, name) for name in names] if texts else [None] * len(names)
        self._names, self._parts = list(names), self._views(found)

    def images(self) -> dict[str, ImageSample]:
        """An ``ImageSample`` for each row, by name. Its arrays have the store's types and are read-only."""
        made = {}
        for row, (name, size, parts) in enumerate(zip(self._names, self.sizes.tolist(), self._parts, strict=True)):
            features, boxes, fields, ids = parts
            made[name] = ImageSample(name, tuple(size), features, boxes, fields, ids, row=(self, row))
        return made

    def _views(self, found: dict[str, NDArray[Any]]) -> list[tuple[Any, Any, dict[str, Any], list[str] | None]]:
        """Features, boxes, fields and ids of each picture."""
        shown = {"features": found["features"].view(), "boxes": self.boxes.view()}
        shown |= {name: found[_source(found, name)].view() for name in self.fields}
        for array in shown.values():
            array.flags.writeable = False
        features, boxes = shown.pop("features"), shown.pop("boxes")
        parts = []
        for row, count in enumerate(self.mask.sum(1).tolist()):
            own = {field: array[row, :count] for field, array in shown.items()}
            parts.append((features[row, :count], boxes[row, :count], own, self.box_ids[row]))
        return parts

    def regions(self, images: Sequence[ImageSample]) -> Regions | None:
        """The regions of some pictures as a batch, by array operations; None where more than features was replaced.

        Args:
            images: pictures made by this table (``row``); features may have been replaced by others of equal shape.
        """
        rows, changed = [], []
        for place, image in enumerate(images):
            row = image.row[1] if image.row is not None else 0
            features, boxes, fields, ids = self._parts[row]
            if image.features is not features:
                changed.append((place, image.features))
            if image.boxes is not boxes or image.fields is not fields or image.box_ids is not ids:
                return None
            rows.append(row)
        if any(array is None or len(array) != int(self.mask[rows[place]].sum()) for place, array in changed):
            return None
        return self._gathered(rows, changed)

    def _gathered(self, rows: list[int], changed: list[tuple[int, Any]]) -> Regions:
        whole = not changed and rows == list(range(len(self._parts)))
        pick = slice(None) if whole else np.array(rows, np.int64)
        features = self.features[pick]
        for place, array in changed:
            features[place, : len(array)] = array
        ids = [self.box_ids[row] or [] for row in rows]
        return Regions(
            features=_tensor(features),
            boxes=_tensor(self.boxes[pick]),
            mask=_tensor(self.mask[pick]),
            sizes=torch.from_numpy(self.sizes[pick].astype(np.int64)),
            box_ids=ids if any(ids) else None,
            **{name: _tensor(array[pick]) for name, array in self.fields.items()},
        )


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array)


def _source(found: dict[str, NDArray[Any]], name: str) -> str:
    """The store's field for a field of a batch: ``class_scores`` falls back to ``scores``."""
    return "scores" if name == "class_scores" and name not in found else name


def _field(found: dict[str, NDArray[Any]], name: str, blank: NDArray[np.bool_]) -> NDArray[Any]:
    array = found[_source(found, name)]
    made = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
    made[blank] = FILLS[name]
    return made


def _shares(boxes: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.float32]:
    """Boxes in pixels as fractions of the picture's size: (M, R, 4)."""
    scale = sizes[:, None, [1, 0, 1, 0]].astype(np.float32)  # (M, 1, 4)
    found: NDArray[np.float32] = np.clip(boxes.astype(np.float32) / scale, 0, 1)
    return found


def _widened(array: NDArray[Any], width: int) -> NDArray[Any]:
    made = np.zeros((len(array), width, *array.shape[2:]), array.dtype)
    made[:, : array.shape[1]] = array
    return made


def _texts(store: FeatureStore, name: str) -> list[str] | None:
    ids = store.read(name, _TEXTS, copy=False).box_ids
    return None if ids is None else [str(one) for one in ids]
