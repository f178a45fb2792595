"""Reads the regions of all pictures of a batch from the store in one call into padded arrays."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vlcli.data.sample import ImageSample
from vlcli.features import FeatureStore
from vlcli.nn.batch import Regions

# Fields of regions in a batch, and their values at padding.
FILLS = {"classes": -1, "class_scores": 0, "attributes": -1, "attribute_scores": 0, "class_probs": 0}


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
        stored = store.read_batch(names, ("features", "boxes", *(name for name in fields if name != "box_ids")))
        self.sizes = stored.pop("sizes")  # (M, 2)
        width = -(-max(stored["mask"].shape[1], 1) // multiple) * multiple
        if width != stored["mask"].shape[1]:
            stored = {name: _widened(array, width) for name, array in stored.items()}
        self.mask = stored.pop("mask")  # (M, R)
        self.features = np.asarray(stored["features"], np.float32)  # (M, R, D)
        scale = self.sizes[:, None, [1, 0, 1, 0]].astype(np.float32)  # (M, 1, 4)
        self.boxes = np.clip(stored["boxes"].astype(np.float32) / scale, 0, 1)  # (M, R, 4)
        if "scores" in stored:
            stored.setdefault("class_scores", stored["scores"])
        self.fields: dict[str, NDArray[Any]] = {}
        for name, fill in FILLS.items():
            if name in stored:
                array = stored[name].astype(np.float32 if stored[name].dtype.kind == "f" else np.int64)
                array[~self.mask] = fill
                self.fields[name] = array
        self.box_ids: list[list[str] | None] = [None] * len(names)
        if "box_ids" in fields:
            ids = [store.read(name, ("box_ids",), copy=False).box_ids for name in names]
            self.box_ids = [None if one is None else [str(name) for name in one] for one in ids]
        self._names, self._parts = list(names), self._views(stored)

    def images(self) -> dict[str, ImageSample]:
        """Return an ``ImageSample`` for each row, by name. Its arrays have the store's types and are read-only."""
        rows = enumerate(zip(self._names, self.sizes.tolist(), self._parts, strict=True))
        return {name: ImageSample(name, tuple(size), *parts, row=(self, row)) for row, (name, size, parts) in rows}

    def _views(self, stored: dict[str, NDArray[Any]]) -> list[tuple[Any, Any, dict[str, Any], list[str] | None]]:
        views = {"features": stored["features"].view(), "boxes": self.boxes.view()}
        views |= {name: stored[name].view() for name in self.fields}
        for view in views.values():
            view.flags.writeable = False
        features, boxes = views.pop("features"), views.pop("boxes")
        parts = []
        for row, count in enumerate(self.mask.sum(1).tolist()):
            fields = {name: view[row, :count] for name, view in views.items()}
            parts.append((features[row, :count], boxes[row, :count], fields, self.box_ids[row]))
        return parts

    def regions(self, images: Sequence[ImageSample]) -> Regions | None:
        """Return the regions of some pictures as a batch; None where more than features was replaced.

        Args:
            images: pictures made by this table (``row``); features may have been replaced by others of equal shape.
        """
        rows: list[int] = []
        changed: list[tuple[int, Any]] = []
        for number, image in enumerate(images):
            row = image.row[1] if image.row is not None else 0
            features, boxes, fields, ids = self._parts[row]
            if image.features is not features:
                changed.append((number, image.features))
            if image.boxes is not boxes or image.fields is not fields or image.box_ids is not ids:
                return None
            rows.append(row)
        if any(array is None or len(array) != int(self.mask[rows[number]].sum()) for number, array in changed):
            return None
        whole = not changed and rows == list(range(len(self._parts)))
        pick = slice(None) if whole else np.array(rows, np.int64)
        features = self.features[pick]  # (B, R, D)
        for number, array in changed:
            if array is not None:
                features[number, : len(array)] = array
        box_ids = [self.box_ids[row] or [] for row in rows]
        arrays = {"features": features, "boxes": self.boxes[pick], "mask": self.mask[pick]}
        arrays |= {"sizes": self.sizes[pick].astype(np.int64)}
        arrays |= {name: array[pick] for name, array in self.fields.items()}
        tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return Regions(**tensors, box_ids=box_ids if any(box_ids) else None)


def _widened(array: NDArray[Any], width: int) -> NDArray[Any]:
    wide = np.zeros((len(array), width, *array.shape[2:]), array.dtype)
    wide[:, : array.shape[1]] = array
    return wide
