"""Draws results: curves over steps, boxes and attention on a picture, contact sheets."""

from typing import TYPE_CHECKING

from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.report.drawing import COLOURS, draw_attention, draw_boxes
    from vlcli.report.sheet import INK, Cell, contact_sheet


__getattr__ = lazily(__name__, __file__)
