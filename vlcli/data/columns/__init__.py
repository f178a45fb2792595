"""Keeps examples in columns on the disk, written once and mapped into the memory of every process that reads them."""

from vlcli.data.columns.index import opened
from vlcli.data.columns.table import ColumnExamples

__all__ = ["ColumnExamples", "opened"]
