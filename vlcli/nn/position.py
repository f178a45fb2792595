"""The position-encoding seam: two small interfaces that every encoding here and elsewhere implements.

*Token* encodings change tokens before a stack. *Pairwise* encodings live inside attention:

    state = position.prepare(x, y, x_layout, y_layout)        once per forward of a stack
    for layer in range(layers):
        xq, yk, yv = position.inputs(x, y, y, state, layer)    shifts what q, k, v are projected from
        q, k, v    = projections                               (B, H, T, d); q not yet scaled
        q, k       = position.rotate(q, k, state, layer)
        scores     = scale * q k^T + position.logits(q, k, state, layer)
        weights    = dropout(softmax(scores + mask))
        out        = weights v + position.values(weights, state, layer)

An encoding that only adds to the scores runs on ``scaled_dot_product_attention``; one whose ``uses_weights`` is true
gets the probabilities. One module serves all layers of a stack and holds what each layer needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vlcli.nn.layout import Layout


@dataclass(frozen=True)
class AttentionShape:
    """What an attention or an encoding needs to know of the stack it serves.

    Attributes:
        dim: width of the tokens.
        heads: attention heads; ``head_dim`` is ``dim / heads``.
        layers: how many layers share the module.
        key_dim: width of the key/value tokens, where it differs (cross-attention); 0: ``dim``.
        dropout: attention probability dropout.
        cross: whether queries and keys are different sequences.
        routes: how many routes the layouts use.
    """

    dim: int
    heads: int
    layers: int = 1
    key_dim: int = 0
    dropout: float = 0.0
    cross: bool = False
    routes: int = 2

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.dim // self.heads


class TokenPosition(nn.Module):
    """An encoding that changes tokens once, before a stack.

    Args:
        shape: of the stack that follows.
    """

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """``x`` (B, T, dim) with its positions; the same shape."""
        return x

    def resize_state(self, state: dict[str, Tensor], old: tuple[int, int], new: tuple[int, int]) -> dict[str, Tensor]:
        """This module's own weights, made for an ``old`` grid (rows, columns), reshaped for a ``new`` one."""
        return state


class PairwisePosition(nn.Module):
    """An encoding of pairs of tokens, called inside attention; every method's default does nothing.

    Args:
        shape: of the stack it serves.
    """

    uses_weights = False
    """Whether :meth:`values` must be called, so that attention has to keep its probabilities."""

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        self.shape = shape

    def prepare(self, x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> Any:
        """What all layers share.

        Args:
            x: (B, Tq, dim) tokens that ask, as they enter the stack.
            y: (B, Tk, key_dim) tokens that are asked; ``x`` itself in self-attention.
            x_layout: places of ``x``.
            y_layout: places of ``y``.

        Returns:
            Anything; handed to the other methods as ``state``.
        """
        return x_layout, y_layout

    def inputs(self, q_in: Tensor, k_in: Tensor, v_in: Tensor, state: Any, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """What queries, keys and values are projected from, shifted (outside the residual): same shapes."""
        return q_in, k_in, v_in

    def rotate(self, q: Tensor, k: Tensor, state: Any, layer: int) -> tuple[Tensor, Tensor]:
        """Queries (B, H, Tq, d) and keys (B, H, Tk, d), turned."""
        return q, k

    def logits(self, q: Tensor, k: Tensor, state: Any, layer: int) -> Tensor | None:
        """Added to the scaled scores: broadcasts to (B, H, Tq, Tk); None for nothing.

        ``q`` and ``k`` are the unscaled projections; an encoding that follows a paper's 1/sqrt(d) applies it itself.
        """
        return None

    def values(self, weights: Tensor, state: Any, layer: int) -> Tensor | None:
        """Added to the context: (B, H, Tq, d) from probabilities (B, H, Tq, Tk) after dropout; None for nothing."""
        return None

    def resize_state(self, state: dict[str, Tensor], old: tuple[int, int], new: tuple[int, int]) -> dict[str, Tensor]:
        """This module's own weights, made for an ``old`` grid (rows, columns), reshaped for a ``new`` one."""
        return state
