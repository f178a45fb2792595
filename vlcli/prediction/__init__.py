"""Predictions about new pictures: what a model can be asked, extraction on the fly, answers as plain records."""

from typing import TYPE_CHECKING

from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.prediction.batches import MAX_TEXT
    from vlcli.prediction.drawing import draw
    from vlcli.prediction.pictures import MAX_PIXELS
    from vlcli.prediction.records import Box, Choice, Failure, Picture, Prediction, RegionFeatures, Request, Use


__getattr__ = lazily(__name__, __file__)
