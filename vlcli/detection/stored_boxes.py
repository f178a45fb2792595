"""Reads a feature store's boxes, so that another extractor computes features at the same boxes."""

from pathlib import Path

from vlcli.features.reader import FeatureStore
from vlcli.images.boxes import BoxList
from vlcli.images.labels import Labels

_FIELDS = ("scores", "classes", "attributes", "box_ids")


def stored_boxes(path: str | Path) -> dict[str, BoxList]:
    """Return the boxes of a store's only box set by image id, with their labels and names."""
    store = FeatureStore(path)
    # A store imported without its pictures does not know their sizes.
    known = store.provenance.get("sizes") in (None, "pictures")
    boxes = {}
    for name in store.ids:
        record = store.read(name, _FIELDS, copy=False)
        columns = {field: getattr(record, field) for field in _FIELDS}
        boxes[name] = BoxList(record.boxes.copy(), size=record.size if known else None, **columns)
    return boxes


def stored_labels(path: str | Path) -> Labels:
    """Return the names of a store's classes and attributes, where its provenance has them."""
    provenance = FeatureStore(path).provenance
    return Labels(*(tuple(provenance.get(name, ())) for name in ("classes", "class_ids", "attributes")))
