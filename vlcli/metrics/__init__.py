"""Scores of predictions by benchmark, their confidence intervals, and exact search of nearest vectors."""

from typing import TYPE_CHECKING

from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.metrics.vqa import table_form


__getattr__ = lazily(__name__, __file__)
