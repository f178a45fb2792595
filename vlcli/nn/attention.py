"""Multi-head attention: the base of every registered attention, and the standard one.

The order of operations, with an optional pairwise encoding (``vlcli.nn.position``):

    inputs -> project -> cache -> rotate -> scores + logits + mask -> softmax -> dropout -> values -> output

A new kind of projection (one set per modality, for instance) overrides :meth:`Attention.project`, and
:meth:`Attention.output` if the output has several sets too. Unless a recorder or the encoding needs probabilities, the
middle runs on ``scaled_dot_product_attention``.
"""

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn.cache import KeyValueCache, Pair
from vlcli.nn.layout import Layout
from vlcli.nn.mask import AttentionMask, Packing
from vlcli.nn.model import Recorder
from vlcli.nn.position import AttentionShape, PairwisePosition, total

Projected = tuple[Tensor, Tensor | None, Tensor | None]
"""Queries, keys and values (B, H, T, d); keys and values are None if a cache holds them."""
Packings = tuple[Packing | None, Packing | None]


@dataclass(frozen=True, eq=False)
class AttentionContext:
    """Inputs of an attention beside its tokens; a stack makes one for each layer.

    Attributes:
        mask: keys that each query may attend to; None: all.
        x_layout: of the query tokens.
        y_layout: of the key tokens in cross-attention; self-attention uses ``x_layout``.
        position: a pairwise position encoding.
        state: what its ``prepare`` returned for these tokens.
        layer: number of the layer in its stack, for the encoding and the cache.
        cache: self-attention appends the keys and values of ``x``; cross-attention computes those of ``y`` once.
        record: keeps the attention probabilities, (B, H, Tq, Tk) before dropout, under ``name``.
        packing: of query tokens and of key tokens that come without padding as (1, K, dim), layouts packed too; mask,
            recorded probabilities and ``state`` stay by row. Allows no cache and no encoding that shifts inputs.
    """

    mask: AttentionMask | None = None
    x_layout: Layout | None = None
    y_layout: Layout | None = None
    position: PairwisePosition | None = None
    state: Any = None
    layer: int = 0
    cache: KeyValueCache | None = None
    record: Recorder | None = None
    name: str = ""
    packing: Packings = (None, None)


NO_CONTEXT = AttentionContext()
"""Self-attention or cross-attention of all tokens with all others, without positions."""


def require_context(method: Callable[..., Any], where: str) -> None:
    """Raise ComponentError if the ``forward`` or ``attend`` of an attention or a layer has no parameter ``context``."""
    parameters = inspect.signature(method).parameters
    positional = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters.values())
    if "context" not in parameters and not positional:
        name = method.__name__
        tokens = "q, k, v" if name == "attend" else "x, y=None"
        what = f"`{name}` of an attention takes one `context` instead of mask, x_layout, y_layout, position and so on."
        expected = f"{name}(self, {tokens}, context=NO_CONTEXT) with context: vlcli.nn.AttentionContext"
        got = f"{name}({', '.join(parameters)})"
        hint = "read context.mask, context.x_layout ... instead (docs/seams.md)"
        raise ComponentError(what, where=where, got=got, expected=expected, hint=hint)


class Attention(nn.Module):
    """Base of every attention: everything but the projections.

    Args:
        shape: widths, heads, dropout and routes of the stack; ComponentError unless the heads divide the width.
        float32_softmax: compute scores and softmax in float32 (VLMo).
    """

    paper: ClassVar[str] = ""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in {"forward", "attend"} & set(vars(cls)):
            require_context(vars(cls)[name], f"{cls.__module__}:{cls.__qualname__}")

    def __init__(self, shape: AttentionShape, *, float32_softmax: bool = False) -> None:
        super().__init__()
        if shape.heads < 1 or shape.dim % shape.heads:
            what = "The width is no multiple of the number of attention heads."
            got = f"width {shape.dim}, {shape.heads} heads"
            hint = "choose heads that divide the width, e.g. 64 channels a head"
            raise ComponentError(what, where=type(self).__name__, got=got, hint=hint)
        self.shape, self.heads = shape, shape.heads
        self.dropout, self.float32_softmax = shape.dropout, float32_softmax

    def project(
        self, q_in: Tensor, k_in: Tensor | None, v_in: Tensor | None, x_layout: Layout | None, y_layout: Layout | None
    ) -> Projected:
        """Project inputs to queries, keys and values per head; called by :meth:`forward`. Subclasses define it.

        Args:
            q_in: (B, Tq, dim) inputs of the queries.
            k_in: (B, Tk, key_dim) inputs of the keys; None if keys and values are cached.
            v_in: (B, Tk, key_dim) inputs of the values; None with ``k_in``.
            x_layout: of the query tokens.
            y_layout: of the key tokens.

        Returns:
            (B, H, Tq, d), (B, H, Tk, d), (B, H, Tk, d); keys and values None if ``k_in`` is.
        """
        raise NotImplementedError(f"{type(self).__name__} does not project")

    def output(self, context: Tensor, x_layout: Layout | None) -> Tensor:
        """Mix the heads; called once per layer by :meth:`forward`. The base returns its input.

        Args:
            context: (B, Tq, dim) weighted values, heads side by side.
            x_layout: layout of the query tokens.

        Returns:
            (B, Tq, dim).
        """
        return context

    def projection(self, linear: nn.Linear) -> nn.Module | None:
        """Replace a projection of a foreign model; called by ``vlcli.foreign.equip`` for each of them.

        Args:
            linear: computes queries, keys or values, or all three.

        Returns:
            A module with the parameters of ``linear``, called with tokens (B, T, D) and their ``layout``; None, as from
            the base: this attention differs in more than its projections.
        """
        return None

    def inherit(self, filled: Collection[str]) -> list[str]:
        """Fill parameters that a checkpoint lacked from those that it held; called once after weights are loaded.

        Args:
            filled: names of this module's parameters that were loaded.

        Returns:
            Names of the parameters that this call filled.
        """
        return []

    def forward(self, x: Tensor, y: Tensor | None = None, context: AttentionContext = NO_CONTEXT) -> Tensor:
        """Attend from ``x`` to ``y``, or from ``x`` to itself; called by :class:`~vlcli.nn.blocks.AttentionBlock`.

        Args:
            x: (B, Tq, dim) tokens of the queries.
            y: (B, Tk, key_dim) tokens of keys and values; None in self-attention.
            context: all other inputs.

        Returns:
            (B, Tq, dim), packed as ``x`` was.
        """
        source, position = x if y is None else y, context.position or _NO_POSITION
        inputs = position.inputs(x, source, source, context.state, context.layer)
        cache, key = context.cache, (context.layer, y is not None)
        q, k, v = self._projected(*inputs, context, key)
        if cache is not None and key in cache.shared:
            if context.position is None and context.record is None:
                mixed = self._attend_shared(q, (k, v), cache.shared[key], cache.per, context.mask)
                return self.output(mixed.transpose(1, 2).flatten(2), context.x_layout)
            k, v = cache.get(key)
        x_packing, y_packing = context.packing[0], context.packing[y is not None]
        q = q if x_packing is None else x_packing.spread(q)
        k, v = (k, v) if y_packing is None else (y_packing.spread(k), y_packing.spread(v))
        mixed = self.attend(q, k, v, context).transpose(1, 2).flatten(2)  # (B, Tq, dim)
        return self.output(mixed if x_packing is None else x_packing.pack(mixed), context.x_layout)

    def _projected(
        self, q_in: Tensor, k_in: Tensor, v_in: Tensor, context: AttentionContext, key: tuple[int, bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        cache, crossing = context.cache, key[1]
        layouts = context.x_layout, context.y_layout if crossing else context.x_layout
        if cache is not None and crossing and cache.has(key):
            return self.project(q_in, None, None, *layouts)[0], *cache.get(key)
        q, k, v = self.project(q_in, k_in, v_in, *layouts)
        assert k is not None
        assert v is not None
        if cache is not None:
            k, v = cache.extend(key, k, v)
        return q, k, v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, context: AttentionContext = NO_CONTEXT) -> Tensor:
        """Compute scores, softmax and weighted values; called by :meth:`forward` with the projections of all keys.

        Args:
            q: (B, H, Tq, d) queries, not scaled.
            k: (B, H, Tk, d) keys, those in a cache included.
            v: (B, H, Tk, d) values.
            context: mask, position, state, layer, record and name are read.

        Returns:
            (B, H, Tq, d), the values weighted by the attention probabilities.
        """
        position, state, layer, record = context.position or _NO_POSITION, context.state, context.layer, context.record
        dtype, rate = self._score_dtype(q), self.dropout if self.training else 0.0
        bias = None if context.mask is None else context.mask.bias(q.shape[2], k.shape[2], q.device, dtype)
        q, k = position.rotate(q, k, state, layer)
        if bias is None and record is None and not rate and dtype == q.dtype:
            whole = position.attend(q, k, v, state, layer)
            if whole is not None:
                return whole
        added = position.logits(q, k, state, layer)
        keeps = record is not None or position.uses_weights
        if not (keeps or self._slow_when_fused(q, k, added)) and dtype == q.dtype:
            extra = total(added, bias)
            return F.scaled_dot_product_attention(q, k, v, None if extra is None else extra.to(q.dtype), rate)
        weights = self._weights(q, k, added, bias)
        if record is not None:
            record.keep(context.name, weights)
        weights = F.dropout(weights, self.dropout, self.training).to(v.dtype)
        more = position.values(weights, state, layer)
        return weights @ v if more is None else weights @ v + more  # (B, H, Tq, d)

    def _slow_when_fused(self, q: Tensor, k: Tensor, added: Tensor | None) -> bool:
        if q.device.type != "cpu":
            return False
        # The fused kernels of a CPU know no dropout; what torch falls back on costs more than separate steps.
        dropping = self.training and self.dropout > 0
        # Nor are they fast at bfloat16 on short sequences: eight times the time of separate steps at 24 words.
        short = q.dtype == torch.bfloat16 and max(q.shape[2], k.shape[2]) < 256
        # Nor do they know a mask that learns.
        return dropping or short or (added is not None and added.requires_grad)

    def _attend_shared(self, q: Tensor, rows: Pair, shared: Pair, per: int, mask: AttentionMask | None) -> Tensor:
        # Returns (A * per, H, Tq, d). All queries of a picture's rows meet its keys in one product, without copies.
        dtype, common = self._score_dtype(q), shared[0].shape[2]
        q = q.to(dtype) * self.shape.head_dim**-0.5
        far = _by_row(_by_owner(q, per) @ shared[0].to(dtype).transpose(-1, -2), per)  # (B, H, Tq, P)
        scores = torch.cat([far, q @ rows[0].to(dtype).transpose(-1, -2)], -1)
        bias = None if mask is None else mask.bias(scores.shape[-2], scores.shape[-1], q.device, dtype)
        weights = (scores if bias is None else scores + bias).softmax(-1)
        weights = F.dropout(weights, self.dropout, self.training).to(rows[1].dtype)
        return _by_row(_by_owner(weights[..., :common], per) @ shared[1], per) + weights[..., common:] @ rows[1]

    def _weights(self, q: Tensor, k: Tensor, added: Tensor | None, bias: Tensor | None) -> Tensor:
        dtype = self._score_dtype(q)
        q, k = q.to(dtype) * self.shape.head_dim**-0.5, k.to(dtype)
        extra = total(added, bias)
        if extra is None or extra.dtype != dtype or extra.shape != (*q.shape[:-1], k.shape[-2]):
            scores = q @ k.transpose(-1, -2)  # (B, H, Tq, Tk)
            return (scores if extra is None else scores + extra).softmax(-1)
        # A term for every pair and head: the product is summed onto it, which spares a pass over all pairs.
        scores = torch.baddbmm(extra.flatten(0, 1), q.flatten(0, 1), k.flatten(0, 1).transpose(-1, -2))
        return scores.view_as(extra).softmax(-1)

    def _score_dtype(self, q: Tensor) -> torch.dtype:
        return torch.float32 if self.float32_softmax and q.dtype in (torch.float16, torch.bfloat16) else q.dtype

    def split(self, tokens: Tensor) -> Tensor:
        """Split the channels into heads; called by implementations of :meth:`project`.

        Args:
            tokens: (B, T, dim).

        Returns:
            (B, H, T, d).
        """
        return torch.unflatten(tokens, -1, (self.heads, -1)).transpose(1, 2)


class StandardAttention(Attention):
    """Multi-head attention with one set of projections for all tokens.

    Args:
        bias: which projections have a bias: all, queries and values only (BEiT, VLMo), or none.
        dense: whether heads are mixed by an output projection.
        float32_softmax: compute scores and softmax in float32.
    """

    paper = "Vaswani et al. 2017, Attention Is All You Need, Eq. 1"

    def __init__(
        self,
        shape: AttentionShape,
        *,
        bias: Literal["all", "query_value", "none"] = "all",
        dense: bool = True,
        float32_softmax: bool = False,
    ) -> None:
        super().__init__(shape, float32_softmax=float32_softmax)
        width = shape.key_dim or shape.dim
        self.query = nn.Linear(shape.dim, shape.dim, bias=bias != "none")
        self.key = nn.Linear(width, shape.dim, bias=bias == "all")
        self.value = nn.Linear(width, shape.dim, bias=bias != "none")
        self.dense = nn.Linear(shape.dim, shape.dim) if dense else nn.Identity()

    def project(
        self, q_in: Tensor, k_in: Tensor | None, v_in: Tensor | None, x_layout: Layout | None, y_layout: Layout | None
    ) -> Projected:
        q = self.split(self.query(q_in))
        if k_in is None or v_in is None:
            return q, None, None
        return q, self.split(self.key(k_in)), self.split(self.value(v_in))

    def output(self, context: Tensor, x_layout: Layout | None) -> Tensor:
        return cast("Tensor", self.dense(context))


_NO_POSITION = PairwisePosition(AttentionShape(dim=1, heads=1))


def _by_owner(x: Tensor, per: int) -> Tensor:
    # (A * per, H, T, ...) -> (A, H, per * T, ...): the rows of one owner side by side.
    return torch.unflatten(x, 0, (-1, per)).transpose(1, 2).flatten(2, 3)


def _by_row(x: Tensor, per: int) -> Tensor:
    return torch.unflatten(x, 2, (per, -1)).transpose(1, 2).flatten(0, 1)
