"""How models draw their first weights: BERT's way, with more where a model is narrower than the published ones."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

PUBLISHED_STD = 0.02
"""Deviation of BERT's freshly drawn weights."""
InitStd = float | Literal["auto"]
"""What a model takes as ``init_std``: see :func:`init_scale`."""


def init_scale(std: InitStd, width: int, published: int = 768) -> float:
    """The deviation of freshly drawn weights: a number as it is, ``auto`` by the width.

    The published 0.02 from the published width on, and ``0.02 * (published / width) ** 0.75`` below it: 0.034 at 384,
    0.077 at 128, 0.129 at 64, near ``1 / sqrt(width)``. With 0.02 a narrow model's attention starts out all but
    even, and stays so for tens of thousands of examples.

    Args:
        std: a number, or ``auto``.
        width: of the hidden states.
        published: the narrowest width at which the papers draw with 0.02.
    """
    if std != "auto":
        return std
    return PUBLISHED_STD if width >= published else PUBLISHED_STD * (published / width) ** 0.75


class BoxProjection(nn.Linear):
    """The linear layer that reads a box: 4 coordinates, 5 numbers (and area) or 7 (and width, height, area).

    A layer norm follows in LXMERT, UNITER and DiMBERT, and with a bias of zero that norm removes the length of the
    projected box: boxes at (.1, .1) and (.7, .7) start out nearly alike. :func:`initialise` therefore gives narrow
    models (whose weights are drawn with more than the published 0.02) a bias that centres the coordinates and adds a
    fixed direction, against which lengths and signs survive the norm. At published widths the bias starts at zero.
    """

    def centre(self, std: float) -> None:
        """Draw the bias: minus the projection of a middling box, plus noise as large as the projected coordinates.

        Args:
            std: deviation of the weights, drawn before.
        """
        middle = self.weight.new_tensor([0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.06])
        if self.in_features == 5:
            middle = middle[[0, 1, 2, 3, 6]]
        with torch.no_grad():
            spread = std * (4 / 12) ** 0.5  # four coordinates, evenly spread over the picture
            nn.init.normal_(self.bias, std=spread)
            self.bias.sub_(self.weight @ middle[: self.in_features])


def initialise(module: nn.Module, std: float = PUBLISHED_STD) -> None:
    """BERT's initialisation of one module: normal weights, zero biases, unit norms (use with ``apply``)."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=std)
    if isinstance(module, nn.LayerNorm):
        nn.init.ones_(module.weight)
    if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, BoxProjection) and std > PUBLISHED_STD:
        module.centre(std)
