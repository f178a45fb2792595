"""Predictions about new pictures: what a model can be asked, extraction on the fly, answers as plain records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.prediction.batches import MAX_TEXT
    from vlcli.prediction.drawing import draw
    from vlcli.prediction.pictures import MAX_PIXELS
    from vlcli.prediction.records import Box, Choice, Failure, Picture, Prediction, RegionFeatures, Request, Use


__all__ = [
    "MAX_PIXELS",
    "MAX_TEXT",
    "Box",
    "Choice",
    "Failure",
    "Picture",
    "Prediction",
    "RegionFeatures",
    "Request",
    "Use",
    "draw",
]

__getattr__ = lazily(__name__)
