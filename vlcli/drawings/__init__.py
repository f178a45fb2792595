"""Drawings: components that turn data, trained models and measurements into pictures (``vlcli draw``)."""

from vlcli.drawings.base import PLOTS, Drawing, Scene, new_figure, save_numbers, save_picture

__all__ = ["PLOTS", "Drawing", "Scene", "new_figure", "save_numbers", "save_picture"]
