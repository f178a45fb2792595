"""Scores of predictions: pure functions on numbers and strings, no files, no torch.

One module a family: ``vqa``, ``nlvr2``, ``ranking``, ``interval``.
"""

from typing import TYPE_CHECKING

from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.metrics.vqa import table_form


__getattr__ = lazily(__name__, __file__)
