"""Position encodings for models made elsewhere: ``vlcli_irpe.equip(model, method="product", sides=["key"])``."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn

from vlcli import foreign
from vlcli.nn import PairwisePosition
from vlcli.registry import Spec

M = TypeVar("M", bound=nn.Module)


def equip(model: M, position: Spec | str | PairwisePosition | None = None, **options: Any) -> M:
    """Give a model of another library a relative position encoding, in place: :func:`vlcli.foreign.equip`.

    Args:
        model: whose attention one of the ``equippers`` knows.
        position: a registered pairwise encoding or attention, or a module; None: iRPE.
        options: of the encoding, as a recipe would set them, and those of :func:`vlcli.foreign.equip`.

    Returns:
        The same model. Tables are added under the names of the iRPE release (``rpe_k.lookup_table_weight`` beside the
        projections); weights and their names stay as they are.

    Raises:
        ComponentError: no attention was found that it could be added to; the message says what was looked for.
    """
    return foreign.equip(model, "irpe" if position is None else position, **options)
