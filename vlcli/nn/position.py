"""Defines the interfaces of position encodings.

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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from operator import add
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vlcli.nn.layout import Layout

Sort = Literal["word", "cell", "box", "special"]
"""What a token is: a piece of a sentence, a cell of a grid, a box, or a class token or separator without a place."""
PositionKind = Literal["tokens", "pairs"]
"""The two kinds of encodings: those that change tokens, and those of pairs, which live inside attention."""
_PLACED: frozenset[Sort] = frozenset({"word", "cell", "box"})  # the sorts of tokens that have a place
_PLURAL = {"word": "words", "cell": "cells of a grid", "box": "boxes", "special": "class tokens"}


@dataclass(frozen=True)
class Slot:
    """A model's parameter that takes position encodings; ``Model.slots`` lists them.

    Attributes:
        name: of the parameter, e.g. ``cross_position``.
        takes: the kinds of encodings that have an effect; others are refused.
        holds: the sorts of tokens; in cross-attention those of the queries.
        keys: the sorts of the keys in cross-attention; empty: ``holds``.
        closed: why the model's other options leave no use for an encoding; empty: the slot is open.
    """

    name: str
    takes: frozenset[PositionKind]
    holds: frozenset[Sort]
    keys: frozenset[Sort] = frozenset()
    closed: str = ""

    @classmethod
    def of(cls, name: str, takes: Iterable[PositionKind], holds: Iterable[Sort], keys: Iterable[Sort] = ()) -> Slot:
        """Build a slot from any collections: ``Slot.of("position", ["pairs"], ["word", "box"])``."""
        return cls(name, frozenset(takes), frozenset(holds), frozenset(keys))

    def without(self, kind: PositionKind, why: str) -> Slot:
        """Return the slot without ``kind``; ``why`` says which of the model's options leave no use for it."""
        return replace(self, takes=self.takes - {kind}, closed=why)

    def pairs(self) -> frozenset[tuple[Sort, Sort]]:
        return frozenset(product(self.holds, self.keys or self.holds))


WORDS = Slot.of("words", ["tokens"], ["word"])
"""The slot of a model's own word positions, which no recipe chooses."""


@dataclass(frozen=True)
class AttentionShape:
    """Sizes of the stack that an attention or an encoding serves.

    Attributes:
        dim: width of the tokens.
        heads: attention heads; ``head_dim`` is ``dim / heads``.
        layers: number of layers that share the module.
        key_dim: width of the key/value tokens in cross-attention, if it differs; 0: ``dim``.
        dropout: of the attention probabilities.
        cross: queries and keys are different sequences.
        routes: number of routes that the layouts use.
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
        return self.dim // self.heads


class Position(nn.Module):
    """Base of :class:`TokenPosition` and :class:`PairwisePosition`; ``shape`` is that of the stack."""

    kind: ClassVar[PositionKind]

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        self.shape = shape

    def objection(self, slot: Slot) -> str:
        """Return why the encoding would have no effect in a slot; called when a model is built, which is then refused.

        Args:
            slot: where a recipe puts the encoding.

        Returns:
            Half a sentence; empty if the encoding has an effect.
        """
        return ""

    def resize_state(self, state: dict[str, Tensor], old: tuple[int, int], new: tuple[int, int]) -> dict[str, Tensor]:
        """Convert this encoding's tensors by name from a grid of ``old`` rows and columns to one of ``new``.

        Called by models that load weights of another image size.
        """
        return state

    def fit_weight(self, name: str, value: Tensor, wanted: Tensor, report: list[str]) -> Tensor:
        """Reshape a checkpoint's ``value`` to this module's shape, that of ``wanted``.

        Called by :func:`vlcli.nn.fitting.fit_weights` for each weight of this encoding whose shape differs. The default
        returns ``value``; loading then reports the two shapes. ``report`` gets one line on what was changed.
        """
        return value


class TokenPosition(Position):
    """An encoding that changes tokens once, before a stack.

    Attributes:
        encodes: sorts of tokens that it changes; a slot that holds none of them refuses it.
        after: blocks of a stack (0 is the first) behind which a model that runs its own blocks calls :meth:`forward`
            with ``block=NUMBER``, instead of once before the stack; empty: before the stack only.
    """

    kind = "tokens"
    encodes: frozenset[Sort] = _PLACED
    after: tuple[int, ...] = ()

    def objection(self, slot: Slot) -> str:
        if self.encodes & slot.holds:
            return ""
        return f"it encodes {listed(self.encodes)}, and the tokens here are {listed(slot.holds)}"

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Add positions to tokens; called once per forward pass, before the first layer. The base changes nothing.

        Args:
            x: (B, T, dim) token embeddings.
            layout: index, centre and box of each token.

        Returns:
            (B, T, dim).
        """
        return x


class PairwisePosition(Position):
    """An encoding of pairs of tokens, called inside attention; every method's default does nothing.

    Attributes:
        encodes: sorts of query and key whose relation it encodes, made with ``within`` and ``between``; a slot where no
            such pair meets refuses it.
        uses_weights: :meth:`values` must be called, so that attention has to keep its probabilities.
        foreign_options: options that ``vlcli.foreign.equip`` sets unless its caller does.
    """

    kind = "pairs"
    encodes: frozenset[tuple[Sort, Sort]] = frozenset(product(_PLACED, _PLACED))
    uses_weights = False
    foreign_options: ClassVar[Mapping[str, Any]] = {}

    def objection(self, slot: Slot) -> str:
        if self.encodes & slot.pairs():
            return ""
        mine = {
            f"{_PLURAL[one]} among themselves" if one == other else f"{_PLURAL[one]} against {_PLURAL[other]}"
            for one, other in map(sorted, self.encodes)
        }
        here = listed(slot.holds) + (f" looking at {listed(slot.keys)}" if slot.keys else " among themselves")
        return f"it encodes {'; '.join(sorted(mine))}, and here are {here}"

    def prepare(self, x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> Any:
        """Compute what all layers share (bucket ids, distances); called once per forward pass of a stack.

        Args:
            x: (B, Tq, dim) query tokens as they enter the stack.
            y: (B, Tk, key_dim) key tokens; ``x`` itself in self-attention.
            x_layout: index, centre and box of each query token.
            y_layout: index, centre and box of each key token.

        Returns:
            Anything; passed to the other methods as ``state``.
        """
        return x_layout, y_layout

    def inputs(self, q_in: Tensor, k_in: Tensor, v_in: Tensor, state: Any, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Shift the inputs of the projections, outside the residual; called once per layer before the projections.

        Args:
            q_in: (B, Tq, dim) inputs of the queries.
            k_in: (B, Tk, key_dim) inputs of the keys.
            v_in: (B, Tk, key_dim) inputs of the values.
            state: from :meth:`prepare`.
            layer: number of the layer.

        Returns:
            Three tensors of the same shapes.
        """
        return q_in, k_in, v_in

    def rotate(self, q: Tensor, k: Tensor, state: Any, layer: int) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys (RoPE); called once per layer after the projections.

        Args:
            q: (B, H, Tq, d) queries, not scaled.
            k: (B, H, Tk, d) keys.
            state: from :meth:`prepare`.
            layer: number of the layer.

        Returns:
            Two tensors of the same shapes.
        """
        return q, k

    def logits(self, q: Tensor, k: Tensor, state: Any, layer: int) -> Tensor | None:
        """Return the term that is added to the scaled scores; called once per layer after :meth:`rotate`.

        An encoding whose paper divides by the square root of d does so itself.

        Args:
            q: (B, H, Tq, d) queries, not scaled.
            k: (B, H, Tk, d) keys.
            state: from :meth:`prepare`.
            layer: number of the layer.

        Returns:
            A tensor that broadcasts to (B, H, Tq, Tk); None for no term.
        """
        return None

    def values(self, weights: Tensor, state: Any, layer: int) -> Tensor | None:
        """Return the term that is added to the weighted values; called once per layer if ``uses_weights`` is true.

        Args:
            weights: (B, H, Tq, Tk) attention probabilities after dropout.
            state: from :meth:`prepare`.
            layer: number of the layer.

        Returns:
            (B, H, Tq, d); None for no term.
        """
        return None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, state: Any, layer: int) -> Tensor | None:
        """Compute a layer's attention as a whole, if that is faster than :meth:`logits` and :meth:`values`.

        Called once per layer after :meth:`rotate` if there is no mask, dropout or recorder.

        Args:
            q: (B, H, Tq, d) queries, not scaled.
            k: (B, H, Tk, d) keys.
            v: (B, H, Tk, d) values.
            state: from :meth:`prepare`.
            layer: number of the layer.

        Returns:
            (B, H, Tq, d), equal to what the other methods give; None: use them.
        """
        return None

    def zero(self) -> None:
        """Set all tables to zero, so that the encoding does nothing; called by ``vlcli.foreign.equip``.

        An encoding that does something with zeros overrides this, or raises ComponentError.
        """
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()

    def layer_parts(self, layer: int) -> dict[str, nn.Module]:
        """Return the modules of one layer alone, by the names that they get beside its projections.

        Called by ``vlcli.foreign.equip``, which adds them to the layer's attention; an encoding without such parts
        becomes one module of the whole model.

        Args:
            layer: number of the layer.

        Returns:
            Modules by name.
        """
        return {}


def total(*terms: Tensor | None) -> Tensor | None:
    """Return the sum of the terms that are there; None if none is."""
    present = [term for term in terms if term is not None]
    return reduce(add, present) if present else None


def within(*sorts: Sort) -> frozenset[tuple[Sort, Sort]]:
    """Return pairs of one sort each: ``within("cell", "box")`` for an encoding of offsets on a picture."""
    return frozenset((sort, sort) for sort in sorts)


def between(first: Sort, *others: Sort) -> frozenset[tuple[Sort, Sort]]:
    """Return pairs of two sorts, in both directions: ``between("word", "cell", "box")``."""
    return frozenset(pair for other in others for pair in ((first, other), (other, first)))


def listed(sorts: Iterable[str]) -> str:
    """Return sorts of tokens in words: "cells of a grid and words"."""
    return " and ".join(_PLURAL[sort] for sort in sorted(sorts)) or "nothing"
