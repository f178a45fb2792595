"""Defines BEiT-3's layers, with linear layers and norms for each modality, and renames its weights."""

import re
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any, cast

from torch import Tensor, nn

import vlcli.nn as vl
from vlcli import registry
from vlcli_vlmo.blocks import IMAGE_EXPERT, TEXT_EXPERT, Parts, Ways

_SPARE_ROWS = 16  # fewer rows than this may be left over behind the vocabulary's words (64,010 rows, 64,002 words)
_WAYS = {"A": IMAGE_EXPERT, "B": TEXT_EXPERT}
_PROJECTIONS = {"A": "others.0.", "B": ""}
_PLAIN = {
    "beit3.text_embed.": "words.",
    "beit3.vision_embed.cls_token": "cls_token",
    "beit3.vision_embed.proj.": "patch.",
    "beit3.encoder.embed_positions.A.": "cell_positions.table.",
    "beit3.encoder.embed_positions.B.": "word_positions.table.",
    "language_head.": "objectives.contrast.text.",
    "vision_head.": "objectives.contrast.image.",
    "logit_scale": "objectives.contrast.scale",
    "mlm_head.": "objectives.mlm.head.",
    "head.norm1.": "objectives.classification.head.norm.",
    "head.dense1.": "objectives.classification.head.inner.",
    "head.norm2.": "objectives.classification.head.inner_norm.",
    "head.dense2.": "objectives.classification.head.outer.",
    "head.0.": "objectives.answering.head.inner.",
    "head.1.": "objectives.answering.head.norm.",
    "head.3.": "objectives.answering.head.outer.",
}
_MODULES = {
    **{f"self_attn.{part[0]}_proj": f"attention.{{projections}}{part}" for part in vl.PROJECTIONS},
    "self_attn_layer_norm": "norm.{way}",
    "self_attn.inner_attn_ln": "inner_norm.{way}",
    "self_attn.out_proj": "dense.{way}",
    "final_layer_norm": "feed_norm.{way}",
    "ffn": "feed.{way}",
    "layer_norm": "norm.{way}",
}
_FEED = {"fc1": "inner", "fc2": "outer", "ffn_layernorm": "norm"}
_INNER = re.compile(r"beit3\.encoder\.(layers\.\d+\.)?([a-z_.]+)\.([AB])\.(?:(\w+)\.)?(\w+)")


def adapt(model: Any, state: dict[str, Tensor], report: list[str]) -> vl.State:
    """Returns weights of a published file by the names of ``model`` and at its sizes; other weights as they are."""
    state = vl.without_prefix(state, "module.", "model.")
    if not any(name.startswith("beit3.") for name in state):
        return state
    state = {own_name(name): value for name, value in state.items()}
    report.append(f"{len(state)} weights had the names of a BEiT-3 release")
    if model.word_head is not None:
        state = {name.replace("objectives.mlm.head.", "word_head."): value for name, value in state.items()}
    rows = len(model.words.weight)
    for name in ("words.weight", "word_head.weight", "word_head.bias"):
        stored = len(state[name]) if name in state else rows
        if 0 < stored - rows < _SPARE_ROWS:
            report.append(f"{name}: rows {rows} to {stored - 1} stand for no word of this vocabulary and are not read")
            state[name] = state[name][:rows]
    name, rows = "word_positions.table.weight", len(model.word_positions.table.weight)
    if name in state:  # the released code counts from the third
        stored = len(state[name])
        report.append(f"{name}: rows 2 to {min(rows + 1, stored - 1)} of {stored}; the first two are never read")
        state[name] = state[name][2 : 2 + rows]
    if "cell_positions.table.weight" in state:
        state["cell_positions.table.weight"] = state["cell_positions.table.weight"][2:]
    return vl.fit_weights(model, state, report)


def own_name(name: str) -> str:
    """Returns a published tensor's name in the model ``beit3``; other names as they are."""
    if (inner := _INNER.fullmatch(name)) and inner[2] in _MODULES:
        module = _MODULES[inner[2]].format(way=_WAYS[inner[3]], projections=_PROJECTIONS[inner[3]])
        feed = f"{_FEED[inner[4]]}." if inner[4] else ""
        return f"stack.{inner[1] or ''}{module}.{feed}{inner[5]}"
    return vl.translate(name, _PLAIN) or name


# Words take the first set of projections and pictures the second; the layer mixes the heads itself, behind a norm
DISENTANGLED = {"name": "disentangled", "sets": [0, 1], "dense": False}


class NormedFeed(nn.Module):
    """Linear layer, activation, norm, linear layer (sub-LN; Magneto, Wang et al. 2022, Figure 2)."""

    def __init__(self, dim: int, hidden: int, style: vl.BlockStyle) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.activation, self.norm = vl.activation(style.activation), nn.LayerNorm(hidden, eps=style.eps)

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.outer(self.norm(self.activation(self.inner(x)))))  # (..., D)


class MultiwayLayer(nn.Module):
    """Attention over all tokens with projections for each modality, then each modality's feed-forward network."""

    def __init__(self, shape: vl.AttentionShape, hidden: int, style: vl.BlockStyle) -> None:
        super().__init__()
        norm = partial(nn.LayerNorm, shape.dim, eps=style.eps)
        self.norm = Ways(norm)
        self.attention = registry.of(vl.Attention).build(DISENTANGLED, shape)
        self.inner_norm = Ways(norm)
        self.dense = Ways(lambda: nn.Linear(shape.dim, shape.dim))
        self.feed_norm = Ways(norm)
        self.feed = Ways(lambda: NormedFeed(shape.dim, hidden, style))
        self.path = vl.DropPath(style.drop_path)

    def forward(self, x: Tensor, parts: Parts, context: vl.AttentionContext) -> Tensor:
        attended = self.attention(self.norm(x, parts), None, context)
        x = x + self.path(self.dense(self.inner_norm(attended, parts), parts))
        return cast("Tensor", x + self.path(self.feed(self.feed_norm(x, parts), parts)))


class MultiwayStack(nn.Module):
    """All layers of BEiT-3, and the norm behind the last one."""

    def __init__(
        self,
        shape: vl.AttentionShape,
        hidden: int,
        style: vl.BlockStyle,
        position: vl.PairwisePosition | None = None,
        final_norm: bool = True,
    ) -> None:
        super().__init__()
        rates = [style.drop_path * number / max(shape.layers - 1, 1) for number in range(shape.layers)]
        self.layers = nn.ModuleList(MultiwayLayer(shape, hidden, replace(style, drop_path=rate)) for rate in rates)
        self.position = position
        self.norm = Ways(lambda: nn.LayerNorm(shape.dim, eps=style.eps)) if final_norm else None
        self.checkpointing = False

    def forward(
        self,
        x: Tensor,
        layout: vl.Layout,
        parts: Parts,
        mask: vl.AttentionMask,
        *,
        cache: vl.KeyValueCache | None = None,
        keep: Collection[int] = (),
        record: vl.Recorder | None = None,
        name: str = "",
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Runs all layers; returns (B, T, D), and the hidden states of ``keep`` before the last norm.

        Args:
            x: (B, T, D); with a cache only the new tokens.
            parts: modalities in the order of the tokens, and how many tokens each has.
            mask: which tokens may attend to which, cached tokens included.
            keep: 0 is the input, n the output of the n-th layer.
            record: keeps ``{name}.{layer}`` attention probabilities.
        """
        keys = layout if cache is None else cache.grow(layout)
        state = None if self.position is None else self.position.prepare(x, x, layout, keys)
        context = vl.AttentionContext(mask, layout, None, self.position, state, cache=cache, record=record)
        active, kept = self.checkpointing and cache is None and record is None, {0: x}
        for number, layer in enumerate(self.layers):
            of_layer = replace(context, layer=number, name=f"{name}.{number}")
            x = kept[number + 1] = vl.run_layer(layer, x, parts, of_layer, active=active)
        return x if self.norm is None else self.norm(x, parts), {number: kept[number] for number in keep}
