"""Defines mixture-of-modality-experts blocks: one attention for all tokens, a feed-forward for each modality."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli.registry import Spec

Rows = Literal["all", "text", "pooled"]
"""Which tokens a pass must finish: the last layer is computed for these alone."""
Parts = list[tuple[str, int]]
"""Experts in the order of the tokens they take, and how many each takes."""

TEXT_EXPERT, IMAGE_EXPERT, FUSED_EXPERT = "text", "image", "fused"


class Expert(nn.Module):
    """Two linear layers with an activation between, behind a norm of its own (released code) or none (paper)."""

    def __init__(self, dim: int, hidden: int, style: vl.BlockStyle, norm: bool = True) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=style.eps) if norm else nn.Identity()
        self.inner = nn.Linear(dim, hidden)
        self.activation = vl.activation(style.activation)
        self.outer = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.outer(self.activation(self.inner(self.norm(x))))  # (..., D)
        return out


class Experts(nn.Module):
    """The feed-forwards of one layer, with the residual they share.

    Args:
        names: the experts there are; one alone takes all tokens (a standard transformer).
        shared_norm: one norm before all experts (VLMo's paper) instead of one each (its code).
    """

    def __init__(self, dim: int, hidden: int, style: vl.BlockStyle, names: Sequence[str], shared_norm: bool) -> None:
        super().__init__()
        self.only = names[0] if len(names) == 1 else None
        self.experts = nn.ModuleDict({name: Expert(dim, hidden, style, not shared_norm) for name in names})
        self.norm = nn.LayerNorm(dim, eps=style.eps) if shared_norm else nn.Identity()
        self.scale = None if style.layer_scale is None else nn.Parameter(torch.full((dim,), style.layer_scale))
        self.path = vl.DropPath(style.drop_path)

    def forward(self, x: Tensor, parts: Parts) -> Tensor:
        """Passes each run of tokens of ``x`` (B, T, D) through its expert."""
        entered = self.norm(x)
        if self.only is not None or len(parts) == 1:
            out = self.experts[self.only or parts[0][0]](entered)
        else:
            runs = entered.split([count for _, count in parts], 1)
            out = torch.cat([self.experts[name](run) for (name, _), run in zip(parts, runs, strict=True)], 1)
        summed: Tensor = x + self.path(out if self.scale is None else out * self.scale)
        return summed


class MoMELayer(nn.Module):
    """Shared self-attention, then the experts (VLMo, section 3.1)."""

    def __init__(
        self,
        shape: vl.AttentionShape,
        hidden: int,
        style: vl.BlockStyle,
        attention: Spec | str,
        experts: Sequence[str],
        shared_norm: bool,
    ) -> None:
        super().__init__()
        self.attention = vl.AttentionBlock(shape, style, attention)
        self.feed = Experts(shape.dim, hidden, style, experts, shared_norm)

    def forward(self, x: Tensor, parts: Parts, context: vl.AttentionContext, rows: slice | None = None) -> Tensor:
        """Runs one layer.

        Args:
            x: (B, T, D), or packed (1, K, D).
            parts: experts in the order of the tokens that are returned, and how many tokens each takes.
            rows: the tokens that are queries and are returned; None: all.

        Returns:
            (B, T, D), or (B, T', D) with ``rows``.
        """
        if rows is None:
            out: Tensor = self.feed(self.attention(x, None, context), parts)
            return out
        entered = self.attention.norm(x)
        seen = self.attention.attention(entered[:, rows], entered, context)
        stream: Tensor = self.feed(self.attention.leave(x[:, rows], seen), parts)
        return stream


class MoMEStack(nn.Module):
    """The layers, one pairwise encoding for all of them, and the final norm that every path shares.

    Args:
        fused_from: the first layer with a vision-language expert; ``shape.layers`` where none has.
        mixture: an expert for each modality; else the image's alone takes all tokens.
        fused_position: a further pairwise encoding of a pair's tokens in the layers from ``fused_from`` on, measured on
            the tokens that enter them.
    """

    def __init__(
        self,
        shape: vl.AttentionShape,
        hidden: int,
        style: vl.BlockStyle,
        attentions: Sequence[Spec | str],
        position: vl.PairwisePosition | None,
        fused_from: int,
        shared_norm: bool = False,
        mixture: bool = True,
        fused_position: vl.PairwisePosition | None = None,
    ) -> None:
        super().__init__()
        layers = []
        for number, attention in enumerate(attentions):
            of_layer = replace(style, drop_path=style.drop_path * number / max(shape.layers - 1, 1))
            names = [TEXT_EXPERT, IMAGE_EXPERT] if mixture else [IMAGE_EXPERT]
            names += [FUSED_EXPERT] if number >= fused_from else []
            layers.append(MoMELayer(shape, hidden, of_layer, attention, names, shared_norm))
        self.layers = nn.ModuleList(layers)
        self.position, self.fused_from, self.fused_position = position, fused_from, fused_position
        self.norm = nn.LayerNorm(shape.dim, eps=style.eps)
        self.checkpointing = self.packed = False

    def forward(
        self,
        x: Tensor,
        layout: vl.Layout,
        parts: Parts,
        *,
        fused: bool,
        first: int = 0,
        rows: Rows = "all",
        keep: Collection[int] = (),
        record: vl.Recorder | None = None,
        name: str = "",
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Run the layers from ``first`` on.

        Args:
            x: (B, T, D).
            fused: whether layers that have a vision-language expert use it for all tokens.
            rows: which tokens must be finished: all, the first part's, or the first token alone.
            keep: layers whose output is returned too: 0 is the input, n the output of the n-th layer.
            record: keeps ``{name}.{layer}`` probabilities.

        Returns:
            (B, T, D) after the final norm (fewer tokens with ``rows``), and the hidden states asked for, without it.
        """
        run = _Run(self, x, layout, parts, fused, record, name)
        kept = {first: x} if first in keep else {}
        x = x if run.packing is None else run.packing.pack(x)
        whole = layout.route.shape[1]  # not len(): an exporter's lengths are symbols
        count = {"all": whole, "text": parts[0][1], "pooled": 1}[rows]
        cut = None if count == whole or record is not None or run.measures else slice(0, count)
        for number in range(first, len(self.layers)):
            x = run.layer(number, x, cut if number == len(self.layers) - 1 else None)
            if number + 1 in keep:
                kept[number + 1] = run.rows_of(x)
        return run.rows_of(self.norm(x)), kept


class Later(vl.PairwisePosition):
    """A pairwise encoding of the top layers only: layer n of the stack is layer n - ``first`` of the encoding.

    The stack calls it in the layers from ``first`` on, where text and image share one sequence (VLMo, section 3.1).

    Args:
        inner: the encoding, made for the top layers.
        first: number of the first of these layers in the stack, counted from 0.
    """

    def __init__(self, inner: vl.PairwisePosition, first: int) -> None:
        super().__init__(inner.shape)
        self.inner, self.first, self.uses_weights = inner, first, inner.uses_weights

    def prepare(self, x: Tensor, y: Tensor, x_layout: vl.Layout, y_layout: vl.Layout) -> Any:
        return self.inner.prepare(x, y, x_layout, y_layout)

    def inputs(self, q_in: Tensor, k_in: Tensor, v_in: Tensor, state: Any, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.inner.inputs(q_in, k_in, v_in, state, layer - self.first)

    def rotate(self, q: Tensor, k: Tensor, state: Any, layer: int) -> tuple[Tensor, Tensor]:
        return self.inner.rotate(q, k, state, layer - self.first)

    def logits(self, q: Tensor, k: Tensor, state: Any, layer: int) -> Tensor | None:
        return self.inner.logits(q, k, state, layer - self.first)

    def values(self, weights: Tensor, state: Any, layer: int) -> Tensor | None:
        return self.inner.values(weights, state, layer - self.first)


class _Run:
    def __init__(
        self,
        stack: MoMEStack,
        x: Tensor,
        layout: vl.Layout,
        parts: Parts,
        fused: bool,
        record: vl.Recorder | None,
        name: str,
    ) -> None:
        self.stack, self.layout, self.parts, self.fused = stack, layout, parts, fused
        self.record, self.name = record, name
        self.mask = vl.AttentionMask(layout.valid)
        self.position = stack.position
        self.state = None if self.position is None else self.position.prepare(x, x, layout, layout)
        self.measures = fused and len(parts) > 1 and stack.fused_position is not None
        self.packing = self._pack(x.shape[0])
        self.packed_layout = None if self.packing is None else self.packing.pack_layout(layout)

    def _pack(self, rows: int) -> vl.Packing | None:
        stack = self.stack
        if not stack.packed or not vl.packable(stack.position) or vl.drops_paths(stack):
            return None
        valid = self.layout.expand(rows).valid
        packing = vl.Packing.of(valid)
        if packing is None or len(self.parts) == 1:
            return packing
        ends = torch.tensor([count for _, count in self.parts], device=valid.device).cumsum(0)
        part = torch.bucketize(packing.places % packing.length, ends, right=True)  # (K,)
        return replace(packing, places=packing.places[part.argsort(stable=True)])

    def rows_of(self, x: Tensor) -> Tensor:
        """Returns ``x`` by row, unpacked if it is packed."""
        return x if self.packing is None else self.packing.unpack(x)

    def layer(self, number: int, x: Tensor, cut: slice | None) -> Tensor:
        """Runs layer ``number``; one that is cut is the last, and gives rows."""
        module = self.stack.layers[number]
        if self.measures and number == self.stack.fused_from:
            x = self._measured(x)
        context = vl.AttentionContext(self.mask, self.layout, None, self.position, self.state, number)
        context = replace(context, record=self.record, name=f"{self.name}.{number}")
        active = self.stack.checkpointing and self.record is None
        if cut is not None:
            x, self.packing = self.rows_of(x), None
            asking, experts = self.layout.cut(0, cut.stop), self._experts(number, cut.stop)
            asking.grid = None
            state = None if self.position is None else self.position.prepare(x[:, cut], x, asking, self.layout)
            context = replace(context, x_layout=asking, y_layout=self.layout, state=state)
        else:
            experts = self._experts(number, None)
        if self.packing is not None:
            context = replace(context, x_layout=self.packed_layout, packing=(self.packing, None))
        out: Tensor = vl.run_layer(module, x, experts, context, cut, active=active)
        return out

    def _measured(self, x: Tensor) -> Tensor:
        x, self.packing = self.rows_of(x), None
        assert self.stack.fused_position is not None
        later = Later(self.stack.fused_position, self.stack.fused_from)
        state = later.prepare(x, x, self.layout, self.layout)
        if self.position is None:
            self.position, self.state = later, state
        else:
            self.position = vl.CombinedPairwise(later.shape, [self.position, later])
            self.state = [self.state, state]
        return x

    def _experts(self, number: int, count: int | None) -> Parts:
        total = sum(size for _, size in self.parts) if count is None else count
        if self.fused and number >= self.stack.fused_from:
            return [(FUSED_EXPERT, total)]
        if count is not None:
            return [(self.parts[0][0], count)]
        if self.packing is None:
            return self.parts
        column, packed, start = self.packing.places % self.packing.length, [], 0
        for name, size in self.parts:
            packed.append((name, int(((column >= start) & (column < start + size)).sum())))
            start += size
        return packed
