"""Defines mixture-of-modality-experts blocks: one attention for all tokens, a feed-forward for each modality."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

import vlcli.nn as vl
from vlcli.registry import Spec

Parts = list[tuple[str, int]]
"""Experts in the order of the tokens they take, and how many each takes."""

TEXT_EXPERT, IMAGE_EXPERT, FUSED_EXPERT = "text", "image", "fused"


def add_types(types: nn.Embedding, text: vl.EncoderOutput, image: vl.EncoderOutput) -> tuple[Tensor, Tensor]:
    """Returns words (P, T, D) and patches (P, R, D) with a row of the types' table: 0, and 1 + the picture's."""
    kind = types.weight[1]
    if image.number is not None:  # more pictures than rows share the last
        kind = types((image.number + 1).clamp(max=types.num_embeddings - 1))[:, None]  # (P, 1, D)
    return text.hidden + types.weight[0], image.hidden + kind


class Ways(nn.ModuleDict):
    """A module for each of ``names`` (``MultiwayNetwork`` of BEiT-3's released code): (B, T, D) to (B, T, D')."""

    def __init__(self, make: Callable[[], nn.Module], names: Sequence[str] = (TEXT_EXPERT, IMAGE_EXPERT)) -> None:
        super().__init__({name: make() for name in names})

    def forward(self, x: Tensor, parts: Parts) -> Tensor:
        if len(parts) == 1:
            return cast("Tensor", self[parts[0][0]](x))
        runs = x.split([count for _, count in parts], 1)
        return torch.cat([self[name](run) for (name, _), run in zip(parts, runs, strict=True)], 1)


def expert(dim: int, hidden: int, style: vl.BlockStyle, norm: bool) -> nn.Module:
    """Returns linear layer, activation and linear layer, behind a norm (released code) or none (paper)."""
    modules: dict[str, nn.Module] = {"norm": nn.LayerNorm(dim, eps=style.eps) if norm else nn.Identity()}
    modules |= {"inner": nn.Linear(dim, hidden), "activation": vl.activation(style.activation)}
    return nn.Sequential(OrderedDict(modules | {"outer": nn.Linear(hidden, dim)}))


class Experts(nn.Module):
    """The feed-forwards of one layer, with the residual they share; a single one takes all tokens.

    ``shared_norm``: one norm before all experts (VLMo's paper) instead of one each (its code).
    """

    def __init__(self, dim: int, hidden: int, style: vl.BlockStyle, names: Sequence[str], shared_norm: bool) -> None:
        super().__init__()
        self.only = names[0] if len(names) == 1 else None
        self.experts = Ways(lambda: expert(dim, hidden, style, not shared_norm), names)
        self.norm = nn.LayerNorm(dim, eps=style.eps) if shared_norm else nn.Identity()
        self.scale = None if style.layer_scale is None else nn.Parameter(torch.full((dim,), style.layer_scale))
        self.path = vl.DropPath(style.drop_path)

    def forward(self, x: Tensor, parts: Parts) -> Tensor:
        out = self.experts(self.norm(x), parts if self.only is None else [(self.only, x.shape[1])])
        return cast("Tensor", x + self.path(out if self.scale is None else out * self.scale))


class MoMELayer(nn.Module):
    """Shared self-attention, then the experts (VLMo, section 3.1)."""

    def __init__(self, attention: vl.AttentionBlock, feed: Experts) -> None:
        super().__init__()
        self.attention, self.feed = attention, feed

    def forward(self, x: Tensor, parts: Parts, context: vl.AttentionContext, rows: slice | None = None) -> Tensor:
        """Runs one layer; returns (B, T, D), or (B, T', D) with ``rows``.

        Args:
            x: (B, T, D), or packed (1, K, D).
            parts: experts in the order of the returned tokens, and how many tokens each takes.
            rows: the tokens that are queries and are returned; None: all.
        """
        if rows is None:
            attended = self.attention(x, None, context)
        else:
            entered = self.attention.norm(x)
            seen = self.attention.attention(entered[:, rows], entered, context)
            attended = self.attention.leave(x[:, rows], seen)
        return cast("Tensor", self.feed(attended, parts))


class MoMEStack(nn.Module):
    """The layers, one pairwise encoding for all of them, and the final norm that every path shares.

    Args:
        fused_from: the first layer with a vision-language expert; ``shape.layers`` where none has.
        mixture: an expert for each modality; else the image's alone takes all tokens.
        fused_position: a further pairwise encoding of pairs from layer ``fused_from`` on, measured on that layer's
            input.
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
        self.layers = nn.ModuleList()
        for number, spec in enumerate(attentions):
            of_layer = replace(style, drop_path=style.drop_path * number / max(shape.layers - 1, 1))
            names = [TEXT_EXPERT, IMAGE_EXPERT] if mixture else [IMAGE_EXPERT]
            names += [FUSED_EXPERT] if number >= fused_from else []
            attention = vl.AttentionBlock(shape, of_layer, spec)
            self.layers.append(MoMELayer(attention, Experts(shape.dim, hidden, of_layer, names, shared_norm)))
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
        rows: vl.Rows = "all",
        keep: Collection[int] = (),
        record: vl.Recorder | None = None,
        name: str = "",
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Runs the layers from ``first`` on; returns (B, T, D) after the final norm, fewer tokens with ``rows``.

        The hidden states of ``keep`` are returned too, without that norm.

        Args:
            x: (B, T, D).
            fused: whether layers that have a vision-language expert use it for all tokens.
            rows: tokens to finish: all, the first part's, or the first token alone.
            keep: 0 is the input, n the output of the n-th layer.
            record: keeps ``{name}.{layer}`` probabilities.
        """
        run = _Run(self, x, layout, parts, fused, record)
        kept = {first: x} if first in keep else {}
        x = x if run.packing is None else run.packing.pack(x)
        whole = layout.route.shape[1]  # not len(): an exporter's lengths are symbols
        count = {"all": whole, "text": parts[0][1], "pooled": 1}[rows]
        cut = None if count == whole or record is not None or run.measures else slice(0, count)
        for number in range(first, len(self.layers)):
            x = run.layer(number, f"{name}.{number}", x, cut if number == len(self.layers) - 1 else None)
            if number + 1 in keep:
                kept[number + 1] = run.rows_of(x)
        return run.rows_of(self.norm(x)), kept


class Later(vl.PairwisePosition):
    """A pairwise encoding of the top layers: layer n of the stack is layer n - ``first`` of the encoding ``inner``."""

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
    # One pass of tokens through a stack: what its layers share, and how the tokens are packed at the moment.
    def __init__(
        self, stack: MoMEStack, x: Tensor, layout: vl.Layout, parts: Parts, fused: bool, record: vl.Recorder | None
    ) -> None:
        self.stack, self.layout, self.parts, self.packed_parts, self.fused = stack, layout, parts, parts, fused
        state = None if stack.position is None else stack.position.prepare(x, x, layout, layout)
        mask = vl.AttentionMask(layout.valid)
        self.context = vl.AttentionContext(mask, layout, None, stack.position, state, record=record)
        self.measures = fused and len(parts) > 1 and stack.fused_position is not None
        self.packing: vl.Packing | None = None
        if stack.packed and vl.packable(stack.position) and not vl.drops_paths(stack):
            self._pack(layout.expand(x.shape[0]))

    def _pack(self, layout: vl.Layout) -> None:
        # Packed tokens are sorted by their expert.
        packing = vl.Packing.of(layout.valid)
        if packing is not None and len(self.parts) > 1:
            ends = torch.tensor([count for _, count in self.parts], device=layout.valid.device).cumsum(0)
            part = torch.bucketize(packing.places % packing.length, ends, right=True)  # (K,)
            packing = replace(packing, places=packing.places[part.argsort(stable=True)])
            counts = part.bincount(minlength=len(self.parts)).tolist()
            self.packed_parts = [(name, count) for (name, _), count in zip(self.parts, counts, strict=True)]
        if packing is not None:
            self.packing, self.packed_layout = packing, packing.pack_layout(layout)

    def rows_of(self, x: Tensor) -> Tensor:
        return x if self.packing is None else self.packing.unpack(x)

    def layer(self, number: int, name: str, x: Tensor, cut: slice | None) -> Tensor:
        """Runs layer ``number``; a layer with ``cut`` is the last, and its output is not packed."""
        if self.measures and number == self.stack.fused_from:
            x = self._measured(x)
        context, parts = replace(self.context, layer=number, name=name), self.parts
        if cut is not None:
            x, self.packing, parts = self.rows_of(x), None, [(self.parts[0][0], cut.stop)]
            asking, position = self.layout.cut(0, cut.stop), context.position
            state = None if position is None else position.prepare(x[:, cut], x, asking, self.layout)
            context = replace(context, x_layout=asking, y_layout=self.layout, state=state)
        elif self.packing is not None:
            context = replace(context, x_layout=self.packed_layout, packing=(self.packing, None))
            parts = self.packed_parts
        if self.fused and number >= self.stack.fused_from:
            parts = [(FUSED_EXPERT, x.shape[1])]
        active = self.stack.checkpointing and context.record is None
        return cast("Tensor", vl.run_layer(self.stack.layers[number], x, parts, context, cut, active=active))

    def _measured(self, x: Tensor) -> Tensor:
        x, self.packing = self.rows_of(x), None
        assert self.stack.fused_position is not None
        position: vl.PairwisePosition = Later(self.stack.fused_position, self.stack.fused_from)
        state, earlier = position.prepare(x, x, self.layout, self.layout), self.context
        if earlier.position is not None:
            position, state = vl.CombinedPairwise(position.shape, [earlier.position, position]), [earlier.state, state]
        self.context = replace(earlier, position=position, state=state)
        return x
