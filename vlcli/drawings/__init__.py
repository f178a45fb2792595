"""Draws data, trained models and measurements as pictures (the verb ``draw``)."""

from typing import TYPE_CHECKING

from vlcli.drawings.base import PLOTS, Drawing, DrawingContext, new_figure, save_numbers, save_picture
from vlcli.lazy import lazily

if TYPE_CHECKING:
    from vlcli.drawings.base import Album, pieces, scaled, token_boxes
    from vlcli.drawings.grad_cam import heated, opened, with_truth
    from vlcli.drawings.predictions import paired, side_by_side


__getattr__ = lazily(__name__, __file__)
