"""Renames and fits the weights of BEiT-3's published files."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

from vlcli.nn import State, fit_weights, translate, without_prefix
from vlcli_vlmo.blocks import IMAGE_EXPERT, TEXT_EXPERT

SPARE_ROWS = 16
"""Fewer rows than this may be left over behind the vocabulary's words (64,010 rows, 64,002 words)."""
_WAYS = {"A": IMAGE_EXPERT, "B": TEXT_EXPERT}
_SETS = {"A": "others.0.", "B": ""}
_PROJECTIONS = {"q": "query", "k": "key", "v": "value"}
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
_BLOCK = {
    "self_attn_layer_norm": "norm",
    "self_attn.inner_attn_ln": "inner_norm",
    "self_attn.out_proj": "dense",
    "final_layer_norm": "feed_norm",
    "ffn": "feed",
}
_FEED = {"fc1": "inner", "fc2": "outer", "ffn_layernorm": "norm"}
_PROJECTION = re.compile(r"beit3\.encoder\.(layers\.\d+)\.self_attn\.([qkv])_proj\.([AB])\.(\w+)")
_INNER = re.compile(r"beit3\.encoder\.(layers\.\d+)\.([a-z_.]+)\.([AB])\.(?:(\w+)\.)?(\w+)")
_LAST = re.compile(r"beit3\.encoder\.layer_norm\.([AB])\.(\w+)")


def adapt(model: Any, state: dict[str, Tensor], report: list[str]) -> State:
    """Returns weights of a published file by the names of ``model`` and at its sizes; other weights as they are."""
    state = without_prefix(state, "module.", "model.")
    if not any(name.startswith("beit3.") for name in state):
        return state
    state = {own_name(name): value for name, value in state.items()}
    report.append(f"{len(state)} weights had the names of a BEiT-3 release")
    if model.word_head is not None:
        state = {name.replace("objectives.mlm.head.", "word_head."): value for name, value in state.items()}
    rows = len(model.words.weight)
    for name in ("words.weight", "word_head.weight", "word_head.bias"):
        stored = len(state[name]) if name in state else rows
        if 0 < stored - rows < SPARE_ROWS:
            report.append(f"{name}: rows {rows} to {stored - 1} stand for no word of this vocabulary and are not read")
            state[name] = state[name][:rows]
    name, rows = "word_positions.table.weight", len(model.word_positions.table.weight)
    if name in state:  # the released code counts from the third
        stored = len(state[name])
        report.append(f"{name}: rows 2 to {min(rows + 1, stored - 1)} of {stored}; the first two are never read")
        state[name] = state[name][2 : 2 + rows]
    if "cell_positions.table.weight" in state:
        state["cell_positions.table.weight"] = state["cell_positions.table.weight"][2:]
    return fit_weights(model, state, report)


def own_name(name: str) -> str:
    """Returns the name in the model ``beit3`` of a tensor of a published file; the same name where there is none."""
    if projection := _PROJECTION.fullmatch(name):
        layer, letter, way, kind = projection.groups()
        return f"stack.{layer}.attention.{_SETS[way]}{_PROJECTIONS[letter]}.{kind}"
    if (inner := _INNER.fullmatch(name)) and inner[2] in _BLOCK:
        feed = f"{_FEED[inner[4]]}." if inner[4] else ""
        return f"stack.{inner[1]}.{_BLOCK[inner[2]]}.{_WAYS[inner[3]]}.{feed}{inner[5]}"
    if norm := _LAST.fullmatch(name):
        return f"stack.norm.{_WAYS[norm[1]]}.{norm[2]}"
    return translate(name, _PLAIN) or name
