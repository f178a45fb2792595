"""Region features on disk: the HDF5 store, box files, and what runs an extractor over images.

The names here need numpy and h5py only. :mod:`vlcli.features.extractor` and
:mod:`vlcli.features.extraction` need torch and are imported by their own names.
"""

from __future__ import annotations

from vlcli.features.boxes import BoxList, boxes_for, image_id, read_boxes
from vlcli.features.inspect import info, verify
from vlcli.features.join import join
from vlcli.features.merge import merge
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import DEFAULT_SET, Record
from vlcli.features.writer import FeatureWriter

__all__ = [
    "DEFAULT_SET",
    "BoxList",
    "FeatureStore",
    "FeatureWriter",
    "Record",
    "boxes_for",
    "image_id",
    "info",
    "join",
    "merge",
    "read_boxes",
    "verify",
]
