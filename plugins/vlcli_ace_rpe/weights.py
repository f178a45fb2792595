"""ALBEF's and LAVIS' files, timm's ViT and transformers' BERT under our names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from vlcli.nn.positions import LearnedPosition

if TYPE_CHECKING:
    from vlcli_ace_rpe.model import ALBEF

State = dict[str, Tensor]
_PARTS = ("query", "key", "value")
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
    "objectives.distilled-mlm.head.transform.dense.": "text_encoder.cls.predictions.transform.dense.",
    "objectives.distilled-mlm.head.transform.norm.": "text_encoder.cls.predictions.transform.LayerNorm.",
    "objectives.distilled-mlm.head.bias": "text_encoder.cls.predictions.bias",
    "objectives.momentum-contrast.image.": "vision_proj.",
    "objectives.momentum-contrast.text.": "text_proj.",
    "objectives.momentum-contrast.temperature": "temp",
    "objectives.momentum-contrast.image_queue": "image_queue",
    "objectives.momentum-contrast.text_queue": "text_queue",
    "objectives.contrast-matching.head.": "itm_head.",
}
"""Heads by the names of ALBEF's pre-training."""
VISUAL, TEXTUAL = "visual_encoder.", "text_encoder.bert."


def albef_name(name: str, text_layers: int) -> str | None:
    """ALBEF's name of one of our parameters; None where there is none, or where several of ours make one."""
    found = re.match(r"(text|cross\.text|image)\.(?:layers\.)?(\d+)\.(.+)", name)
    if found is None:
        for table, prefix in ((_TEXT, TEXTUAL), (_IMAGE, VISUAL), (HEADS, "")):
            theirs = _translate(name, table)
            if theirs is not None:
                return prefix + theirs
        return None
    stack, number, rest = found[1], int(found[2]), found[3]
    if stack == "image":
        inner = _translate(rest, _VIT)
        return None if inner is None else f"{VISUAL}blocks.{number}.{inner}"
    inner, place = _translate(rest, _BLOCK), number + (text_layers if stack == "cross.text" else 0)
    return None if inner is None else f"{TEXTUAL}encoder.layer.{place}.{inner}"


def _translate(name: str, table: Mapping[str, str]) -> str | None:
    return next((theirs + name[len(ours) :] for ours, theirs in table.items() if name.startswith(ours)), None)


def to_albef(state: Mapping[str, Tensor], text_layers: int) -> State:
    """Our weights (of a model, or of a learner) by ALBEF's names; what has none is left out."""
    plain = {name.removeprefix("model."): value for name, value in state.items()}
    made: State = {}
    for name, value in plain.items():
        theirs = albef_name(name, text_layers)
        if theirs is not None:
            made[theirs] = value[None] if theirs.endswith("pos_embed") else value
        found = re.fullmatch(r"image\.layers\.(\d+)\.self_attention\.attention\.query\.(weight|bias)", name)
        if found:
            parts = [plain[name.replace("query", part)] for part in _PARTS]
            made[f"{VISUAL}blocks.{found[1]}.attn.qkv.{found[2]}"] = torch.cat(parts)
    return made


def adapt(model: ALBEF, state: Mapping[str, Tensor], report: list[str]) -> State:
    """Foreign or our own weights under our names, at the sizes of ``model``.

    Args:
        model: what they are for.
        state: by our names or ALBEF's (bare, or with the prefixes of its downstream models and of LAVIS), or a ViT of
            timm, or a BERT of transformers (its first layers are used).
        report: gets a line on everything that was done.
    """
    made = _renamed(model, {_plain(name): value for name, value in state.items()}, report)
    name, position = "positions.0.table.weight", next(iter(model.positions), None)
    table = made.get(name)
    if table is not None and isinstance(position, LearnedPosition) and position.grid is not None:
        table = table[0] if table.dim() == 3 else table
        side = round((len(table) - position.specials) ** 0.5)
        if (side, side) != position.grid:
            table = position.resize_state({"table.weight": table}, (side, side), position.grid)["table.weight"]
            rows, columns = position.grid
            report.append(f"{name}: {side}x{side} places interpolated to {rows}x{columns}")
        made[name] = table
    return made


def _plain(name: str) -> str:
    """ALBEF's pre-training name of a weight, whatever file it is from."""
    name = name.removeprefix("module.")
    if re.match(r"(blocks\.|patch_embed\.|pos_embed$|cls_token$|norm\.(weight|bias)$)", name):
        return f"{VISUAL}{name}"  # a bare ViT
    name = re.sub(r"^(bert\.)?(embeddings|encoder\.layer)\.", rf"{TEXTUAL}\2.", name)
    name = re.sub(r"^cls\.predictions", "text_encoder.cls.predictions", name)
    name = re.sub(r"^text_encoder\.(embeddings|encoder)\.", rf"{TEXTUAL}\1.", name)
    return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))


def _renamed(model: ALBEF, state: State, report: list[str]) -> State:
    depth = len(model.text.layers)
    table = {theirs: name for name, _ in model.named_parameters() if (theirs := albef_name(name, depth)) is not None}
    made: State = {}
    renamed, dropped = 0, 0
    for key, value in state.items():
        joint = re.fullmatch(rf"{VISUAL}blocks\.(\d+)\.attn\.qkv\.(weight|bias)", key.replace("\\", ""))
        if joint:
            stem = f"image.layers.{joint[1]}.self_attention.attention."
            made |= {f"{stem}{part}.{joint[2]}": rows for part, rows in zip(_PARTS, value.chunk(3), strict=True)}
            renamed += 1
        elif key.endswith(("embeddings.position_ids", "predictions.decoder.weight", "predictions.decoder.bias")):
            dropped += 1  # numbered or tied here
        else:
            ours = table.get(key) or next((o + key[len(t) :] for o, t in HEADS.items() if key.startswith(t)), None)
            renamed += ours not in (None, key)
            made[ours or key] = value
    report += [f"{renamed} weights had ALBEF's names"] if renamed else []
    report += [f"{dropped} weights are computed or tied here, not read"] if dropped else []
    return made
