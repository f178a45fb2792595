"""Stores region features in HDF5 files: reader, writer, tools, and conversion of other formats."""

from typing import TYPE_CHECKING

from vlcli.features.concepts import CONCEPTS, WORDS, ConceptStore, concept_record
from vlcli.features.inspect import info, verify
from vlcli.features.join import join, merge
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import DEFAULT_SET, Record
from vlcli.features.writer import FeatureWriter
from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.features.formats.base import ForeignImage, Format, FormatOptions, ImageNames


__getattr__ = lazily(__name__, __file__)
