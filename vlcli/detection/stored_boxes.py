"""The boxes of a store as given boxes: features of other extractors at the same places."""

from __future__ import annotations

from pathlib import Path

from vlcli.features.reader import FeatureStore
from vlcli.images.boxes import BoxList
from vlcli.images.labels import Labels

_FIELDS = ("scores", "classes", "attributes", "box_ids")


def stored_boxes(path: str | Path, set: str | None = None) -> dict[str, BoxList]:
    """Boxes by image id of a store's box set, with their labels and names.

    Args:
        path: the store.
        set: box set; None for the only one.
    """
    store = FeatureStore(path, set)
    # A store imported without its pictures does not know their sizes.
    known = store.provenance.get("sizes") in (None, "pictures")
    found = {}
    for name in store.ids:
        record = store.read(name, _FIELDS, copy=False)
        columns = {field: getattr(record, field) for field in _FIELDS}
        found[name] = BoxList(record.boxes.copy(), size=record.size if known else None, **columns)
    return found


def stored_labels(path: str | Path, set: str | None = None) -> Labels:
    """What the numbers of a store's classes and attributes stand for, where its provenance tells."""
    told = FeatureStore(path, set).provenance
    return Labels(*(tuple(told.get(name, ())) for name in ("classes", "class_ids", "attributes")))
