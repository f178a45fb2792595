"""Region features on disk: the HDF5 store, its reader, writer and tools, and the formats it converts.

The names here need numpy and h5py only. Pictures and given boxes are in :mod:`vlcli.images`, what makes the features in
:mod:`vlcli.detection`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlcli.features.concepts import CONCEPTS, WORDS, ConceptStore, concept_record
from vlcli.features.inspect import info, verify
from vlcli.features.join import join
from vlcli.features.merge import merge
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import DEFAULT_SET, Record
from vlcli.features.writer import FeatureWriter
from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.features.formats import ForeignImage, Format, FormatOptions, ImageNames


__getattr__ = lazily(__name__, __file__)
