"""Names and sizes of BEiT-3's published files."""

from __future__ import annotations

import re
from typing import Protocol

from torch import Tensor, nn

from vlcli.nn import LearnedPosition
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


class Loading(Protocol):
    """What this module asks of a model that reads the files."""

    words: nn.Embedding
    word_positions: LearnedPosition
    cell_positions: LearnedPosition
    grid: tuple[int, int]

    @property
    def word_head(self) -> nn.Module | None:
        """What scores the words of captions, if the model writes them."""


def adapt(model: Loading, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
    """Weights of a published file by the names of ``model`` and at its sizes; other weights as they are.

    Args:
        model: where the weights are going.
        state: tensors by name.
        report: receives one line for each conversion.
    """
    prefix = next((p for p in ("module.", "model.") if state and all(name.startswith(p) for name in state)), "")
    plain = {name.removeprefix(prefix): value for name, value in state.items()}
    if not any(name.startswith("beit3.") for name in plain):
        return plain
    made = {own_name(name): value for name, value in plain.items()}
    report.append(f"{len(made)} weights had the names of a BEiT-3 release")
    if model.word_head is not None:
        made = {name.replace("objectives.mlm.head.", "word_head."): value for name, value in made.items()}
    _fit_vocabulary(model, made, report)
    _fit_words(model, made, report)
    _fit_cells(model, made, report)
    return made


def _fit_vocabulary(model: Loading, state: dict[str, Tensor], report: list[str]) -> None:
    rows = len(model.words.weight)
    for name in ("words.weight", "word_head.weight", "word_head.bias"):
        there = len(state[name]) if name in state else rows
        if 0 < there - rows < SPARE_ROWS:
            report.append(f"{name}: rows {rows} to {there - 1} stand for no word of this vocabulary and are not read")
            state[name] = state[name][:rows]


def _fit_words(model: Loading, state: dict[str, Tensor], report: list[str]) -> None:
    name, rows = "word_positions.table.weight", len(model.word_positions.table.weight)
    if name not in state:
        return
    there = len(state[name])
    report.append(f"{name}: rows 2 to {min(rows + 1, there - 1)} of {there}; the first two are never read")
    state[name] = state[name][2 : 2 + rows]


def _fit_cells(model: Loading, state: dict[str, Tensor], report: list[str]) -> None:
    name = "cell_positions.table.weight"
    if name not in state:
        return
    value = state[name][2:]
    side = round((len(value) - 1) ** 0.5)
    if (side, side) != model.grid and side * side == len(value) - 1:
        value = model.cell_positions.resize_state({"table.weight": value}, (side, side), model.grid)["table.weight"]
        report.append(f"{name}: {side}x{side} places interpolated to {model.grid[0]}x{model.grid[1]}")
    state[name] = value


def own_name(name: str) -> str:
    """The name in the model ``beit3`` of a tensor of a published file; the same name where there is none."""
    if (found := _PROJECTION.fullmatch(name)) is not None:
        layer, letter, way, kind = found.groups()
        return f"stack.{layer}.attention.{_SETS[way]}{_PROJECTIONS[letter]}.{kind}"
    if (found := _INNER.fullmatch(name)) is not None and found[2] in _BLOCK:
        inner = f"{_FEED[found[4]]}." if found[4] else ""
        return f"stack.{found[1]}.{_BLOCK[found[2]]}.{_WAYS[found[3]]}.{inner}{found[5]}"
    if (found := _LAST.fullmatch(name)) is not None:
        return f"stack.norm.{_WAYS[found[1]]}.{found[2]}"
    return next((ours + name[len(theirs) :] for theirs, ours in _PLAIN.items() if name.startswith(theirs)), name)
