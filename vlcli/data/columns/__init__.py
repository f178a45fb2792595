"""Examples as columns on the disk: written once, mapped into the memory of every process that reads them.

``Reader.examples`` gives examples from columns where its files are large, so that every reader has them without a line
of its own. :mod:`.table` holds the examples, :mod:`.places` the pictures' files, :mod:`.tokens` the sentences as ids;
:mod:`.index` decides what is written, under which key and lock.
"""

from vlcli.data.columns.index import opened
from vlcli.data.columns.table import ColumnExamples

__all__ = ["ColumnExamples", "opened"]
