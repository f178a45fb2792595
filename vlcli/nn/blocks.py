"""Transformer blocks, layers and stacks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn.attention import NO_CONTEXT, Attention, AttentionContext, require_context
from vlcli.nn.cache import KeyValueCache
from vlcli.nn.layout import Layout
from vlcli.nn.mask import AttentionMask, Packing
from vlcli.nn.model import Recorder
from vlcli.nn.position import AttentionShape, PairwisePosition
from vlcli.nn.positions import CombinedPairwise
from vlcli.registry import Spec

Activation = Literal["gelu", "gelu_tanh", "relu"]
AttentionChoice = nn.Module | Callable[[AttentionShape], Attention] | Spec | str
"""An attention module, a function of the shape that returns one, or a registered name or entry."""


@dataclass(frozen=True)
class BlockStyle:
    """Norms, dropout and activation of a paper's blocks; the defaults are BERT's.

    Attributes:
        norm: normalise after the residual (``post``: BERT) or before the block (``pre``: ViT).
        eps: of every layer norm.
        dropout: after each block, before the residual.
        activation: of the feed-forward; ``gelu`` is the exact one.
        layer_scale: initial value of a learned factor per channel on each block's output (BEiT, CaiT); None: none.
        drop_path: probability of leaving a block out for an example (stochastic depth).
    """

    norm: Literal["post", "pre"] = "post"
    eps: float = 1e-12
    dropout: float = 0.1
    activation: Activation = "gelu"
    layer_scale: float | None = None
    drop_path: float = 0.0


BERT_STYLE = BlockStyle()
"""Normalisation behind each residual, as in BERT."""
VIT_STYLE = BlockStyle(norm="pre", eps=1e-6, dropout=0.0)
"""Normalisation before each residual, as in ViT."""


def activation(name: str) -> nn.Module:
    """Return an activation by name, or raise ComponentError."""
    known = {"gelu": nn.GELU(), "gelu_tanh": nn.GELU("tanh"), "relu": nn.ReLU()}
    if name not in known:
        raise ComponentError("There is no such activation.", got=repr(name), expected=", ".join(known))
    return known[name]


class DropPath(nn.Module):
    """Stochastic depth (Huang et al. 2016): leaves a block's output out for whole examples."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        keep = x.new_empty(len(x), *[1] * (x.dim() - 1)).bernoulli_(1 - self.rate)
        return x * keep / (1 - self.rate)


class Residual(nn.Module):
    """Residual connection of a block: dropout, layer scale, drop path, and the norm before or after."""

    def __init__(self, dim: int, style: BlockStyle) -> None:
        super().__init__()
        self.pre = style.norm == "pre"
        self.norm = nn.LayerNorm(dim, eps=style.eps)
        self.drop = nn.Dropout(style.dropout)
        self.path = DropPath(style.drop_path)
        self.scale = None if style.layer_scale is None else nn.Parameter(torch.full((dim,), style.layer_scale))

    def enter(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, out: Tensor) -> Tensor:
        """Return ``x`` with the block's output ``out`` added."""
        out = self.drop(out) if self.scale is None else self.drop(out) * self.scale
        stream: Tensor = x + self.path(out)
        return stream if self.pre else cast("Tensor", self.norm(stream))


class AttentionBlock(Residual):
    """Attention with its residual connection: self-attention, or cross-attention to ``y``.

    Raises ComponentError if there is no such attention, a parameter does not fit, or ``forward`` takes no ``context``.
    """

    def __init__(
        self, shape: AttentionShape, style: BlockStyle = BERT_STYLE, attention: AttentionChoice = "standard"
    ) -> None:
        super().__init__(shape.dim, style)
        if isinstance(attention, nn.Module):
            require_context(attention.forward, f"{type(attention).__module__}:{type(attention).__qualname__}")
            self.attention = cast("Attention", attention)
        elif isinstance(attention, str | Mapping):
            self.attention = registry.of(Attention).build(attention, shape)
        else:
            self.attention = attention(shape)

    def forward(self, x: Tensor, y: Tensor | None = None, context: AttentionContext = NO_CONTEXT) -> Tensor:
        # x: (B, Tq, D), y: (B, Tk, key_dim)
        return self.leave(x, self.attention(self.enter(x), y, context))


class FeedForward(Residual):
    """Two linear layers with an activation between, and a residual; ``hidden`` defaults to four times ``dim``."""

    def __init__(self, dim: int, hidden: int | None = None, style: BlockStyle = BERT_STYLE) -> None:
        super().__init__(dim, style)
        self.inner = nn.Linear(dim, hidden or 4 * dim)
        self.activation = activation(style.activation)
        self.outer = nn.Linear(hidden or 4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(x, self.outer(self.activation(self.inner(self.enter(x)))))


class TransformerLayer(nn.Module):
    """Self-attention and feed-forward, ``hidden`` wide: a BERT layer (post-norm) or a ViT one (pre-norm)."""

    def __init__(
        self,
        shape: AttentionShape,
        hidden: int | None = None,
        style: BlockStyle = BERT_STYLE,
        attention: AttentionChoice = "standard",
    ) -> None:
        super().__init__()
        self.self_attention = AttentionBlock(shape, style, attention)
        self.feed_forward = FeedForward(shape.dim, hidden, style)

    def forward(self, x: Tensor, context: AttentionContext = NO_CONTEXT) -> Tensor:
        return cast("Tensor", self.feed_forward(self.self_attention(x, None, context)))


class Stack(nn.Module):
    """Layers in a row, with one pairwise encoding prepared once for all of them.

    With ``checkpointing`` each layer is computed again in the backward pass. With ``packed`` padding is left out of
    everything that is computed token by token, and comes out as zeros (encodings that shift inputs, drop path and a
    cache need rows: the stack then runs unpacked).

    Args:
        layers: called as ``layer(x, context)`` with an :class:`~vlcli.nn.attention.AttentionContext`; ComponentError if
            one takes no ``context``.
        final_norm: applied after the last layer (pre-norm stacks).
    """

    def __init__(
        self, layers: Sequence[nn.Module], position: PairwisePosition | None = None, final_norm: nn.Module | None = None
    ) -> None:
        super().__init__()
        for kind in {type(layer) for layer in layers}:
            require_context(kind.forward, f"{kind.__module__}:{kind.__qualname__}")
        self.layers = nn.ModuleList(layers)
        self.position = position
        self.norm = final_norm
        self.checkpointing = False
        self.packed = False

    @classmethod
    def of(
        cls,
        count: int,
        shape: AttentionShape,
        hidden: int | None = None,
        style: BlockStyle = BERT_STYLE,
        attention: Spec | str | Callable[[AttentionShape], Attention] = "standard",
        position: PairwisePosition | None = None,
    ) -> Stack:
        """Build ``count`` equal layers; drop path grows linearly with depth; pre-norm stacks end in a norm."""
        shape = replace(shape, layers=count)
        rates = [style.drop_path * number / max(count - 1, 1) for number in range(count)]
        layers = [TransformerLayer(shape, hidden, replace(style, drop_path=rate), attention) for rate in rates]
        return cls(layers, position, nn.LayerNorm(shape.dim, eps=style.eps) if style.norm == "pre" else None)

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        mask: AttentionMask | None = None,
        *,
        cache: KeyValueCache | None = None,
        record: Recorder | None = None,
        name: str = "",
        keep: Collection[int] = (),
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Run every layer; return (B, T, D), and the hidden states of the layers in ``keep``.

        Args:
            x: (B, T, D); with a cache only the new tokens.
            mask: over cached tokens too.
            cache: gets the new tokens. ``PairwisePosition.inputs`` then sees the new tokens alone, while its state
                covers all keys: the new ones are the last.
            record: keeps the probabilities of each layer as ``{name}.{layer}``.
            keep: 0 is the input, n the output of the n-th layer.
        """
        kept = {0: x} if 0 in keep else {}
        keys = layout if cache is None else cache.grow(layout)
        state = None if self.position is None else self.position.prepare(x, x, layout, keys)
        rowwise = not packable(self.position) or cache is not None or drops_paths(self)
        packing = Packing.of(layout.valid) if self.packed and not rowwise else None
        if packing is not None:
            x, layout = packing.pack(x), packing.pack_layout(layout)
        context = AttentionContext(mask, layout, None, self.position, state, cache=cache, record=record)
        context = replace(context, packing=(packing, None))
        active = self.checkpointing and cache is None and record is None
        for number, layer in enumerate(self.layers):
            x = run_layer(layer, x, replace(context, layer=number, name=f"{name}.{number}"), active=active)
            if number + 1 in keep:
                kept[number + 1] = x if packing is None else packing.unpack(x)
        x = x if self.norm is None else self.norm(x)
        return x if packing is None else packing.unpack(x), kept


def packable(position: PairwisePosition | None) -> bool:
    """Return whether tokens may come without padding: an encoding that shifts inputs needs them by row."""
    if isinstance(position, CombinedPairwise):
        return all(packable(part) for part in position.each())
    return position is None or type(position).inputs is PairwisePosition.inputs


def drops_paths(module: nn.Module) -> bool:
    """Return whether a block of ``module`` may be left out for whole examples."""
    return any(part.rate > 0 for part in module.modules() if isinstance(part, DropPath))


def run_layer(module: nn.Module, /, *inputs: Any, active: bool) -> Any:
    """Run a layer; if ``active``, it is computed again in the backward pass."""
    if active and module.training and torch.is_grad_enabled():
        return checkpoint(module, *inputs, use_reentrant=False)
    return module(*inputs)
