"""Exporters: a trained model in another format. An exporter subclasses :class:`vlcli.export.Exporter`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.export.base import Exported, Exporter, Trained

_HOMES = {
    "Exported": "base",
    "Exporter": "base",
    "Trained": "base",
}

__all__ = [
    "Exported",
    "Exporter",
    "Trained",
]

__getattr__ = lazily(__name__, _HOMES)
