"""Converts region features of other projects to and from a store.

obj36     LXMERT's TSV            read, written
butd      bottom-up's TSV         read, written
npz       a file an image         read
vlp       VLP's sharded HDF5      read
concepts  lists of visual concepts, as the box set that vlcli.features.concepts reads
mattnet   detections of MAttNet, boxes without features
"""

from vlcli.features.formats.base import ForeignImage, Format, FormatOptions, ImageNames
from vlcli.features.formats.tsv import BUTD, OBJ36, TSVFormat

# What can be exported, by name
TABLES: dict[str, TSVFormat] = {"obj36": OBJ36, "butd": BUTD}

__all__ = ["TABLES", "ForeignImage", "Format", "FormatOptions", "ImageNames", "TSVFormat"]
