"""What ALBEF calls our weights."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

State = dict[str, Tensor]
PARTS = ("query", "key", "value")
_TEXT = {
    "embed.words.": "embeddings.word_embeddings.",
    "embed.positions.0.table.": "embeddings.position_embeddings.",
    "embed.segments.": "embeddings.token_type_embeddings.",
    "embed.norm.": "embeddings.LayerNorm.",
}
_BLOCK = {
    "self_attention.attention.dense.": "attention.output.dense.",
    "self_attention.attention.": "attention.self.",
    "self_attention.norm.": "attention.output.LayerNorm.",
    "itself.attention.dense.": "attention.output.dense.",
    "itself.attention.": "attention.self.",
    "itself.norm.": "attention.output.LayerNorm.",
    "other.attention.dense.": "crossattention.output.dense.",
    "other.attention.": "crossattention.self.",
    "other.norm.": "crossattention.output.LayerNorm.",
    "feed_forward.inner.": "intermediate.dense.",
    "feed_forward.outer.": "output.dense.",
    "feed_forward.norm.": "output.LayerNorm.",
}
_WORDS = {
    "transform.dense.": "cls.predictions.transform.dense.",
    "transform.norm.": "cls.predictions.transform.LayerNorm.",
    "bias": "cls.predictions.bias",
}
_VIT = {
    "self_attention.norm.": "norm1.",
    "self_attention.attention.dense.": "attn.proj.",
    "feed_forward.norm.": "norm2.",
    "feed_forward.inner.": "mlp.fc1.",
    "feed_forward.outer.": "mlp.fc2.",
}
_IMAGE = {
    "cls_token": "cls_token",
    "positions.0.table.weight": "pos_embed",
    "patch.": "patch_embed.proj.",
    "image.norm.": "norm.",
}
HEADS = {
    **{f"objectives.distilled-mlm.head.{ours}": f"text_encoder.{theirs}" for ours, theirs in _WORDS.items()},
    "objectives.momentum-contrast.image.": "vision_proj.",
    "objectives.momentum-contrast.text.": "text_proj.",
    "objectives.momentum-contrast.temperature": "temp",
    "objectives.momentum-contrast.image_queue": "image_queue",
    "objectives.momentum-contrast.text_queue": "text_queue",
    "objectives.momentum-contrast.place": "queue_ptr",
    "objectives.contrast-matching.head.": "itm_head.",
    "objectives.distilled-classification.head.": "cls_head.",
    "objectives.text-assignment.head.": "ta_head.",
}
"""Heads by the names of ALBEF's pre-training and fine-tuning."""
VISUAL, TEXTUAL, SAID = "visual_encoder.", "text_encoder.bert.", "text_decoder."


def albef_name(name: str, text_layers: int) -> str | None:
    """ALBEF's name of one of our parameters; None where there is none, or where several of ours make one."""
    found = re.match(r"(text|cross\.text|image|decoder)\.(?:layers\.)?(\d+)\.(.+)", name)
    if found is None:
        tables = [(_TEXT, "", TEXTUAL), (_IMAGE, "", VISUAL), (HEADS, "", "")]
        tables += [(_TEXT, "decoder.", f"{SAID}bert."), (_WORDS, "decoder.head.", SAID)]
        for table, own, prefix in tables:
            theirs = _translate(name.removeprefix(own), table) if name.startswith(own) else None
            if theirs is not None:
                return prefix + theirs
        return None
    stack, number, rest = found[1], int(found[2]), found[3]
    inner = _translate(rest, _VIT if stack == "image" else _BLOCK)
    if inner is None:
        return None
    if stack == "image":
        return f"{VISUAL}blocks.{number}.{inner}"
    place = number + (text_layers if stack == "cross.text" else 0)
    return f"{SAID + 'bert.' if stack == 'decoder' else TEXTUAL}encoder.layer.{place}.{inner}"


def _translate(name: str, table: Mapping[str, str]) -> str | None:
    return next((theirs + name[len(ours) :] for ours, theirs in table.items() if name.startswith(ours)), None)


def to_albef(state: Mapping[str, Tensor], text_layers: int) -> State:
    """Our weights (of a model, or of a training module) by ALBEF's names; what has none is left out."""
    plain = {name.removeprefix("model."): value for name, value in state.items()}
    made: State = {}
    for name, value in plain.items():
        theirs = albef_name(name, text_layers)
        if theirs is not None:
            made[theirs] = value[None] if theirs.endswith("pos_embed") else value
        found = re.fullmatch(r"image\.layers\.(\d+)\.self_attention\.attention\.query\.(weight|bias)", name)
        if found:
            parts = [plain[name.replace("query", part)] for part in PARTS]
            made[f"{VISUAL}blocks.{found[1]}.attn.qkv.{found[2]}"] = torch.cat(parts)
    return made
