"""Renames weights between vlcli's DeiT and timm's vision transformers, with the iRPE authors' tables among them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

from vlcli.nn import PROJECTIONS, TIMM_NAMES, State, from_public, to_public, translate

_FIXED = {"patch.": "patch_embed.proj.", "stack.norm.": "norm.", "positions.0.table.weight": "pos_embed"}
_TABLES = re.compile(r"^stack\.position\.(?:parts\.\d+\.)?layers\.(\d+)\.(rpe_[qkv]\..+)$")
_PROJECTION = re.compile(r"^stack\.layers\.(\d+)\.self_attention\.attention\.(query|key|value)\.(weight|bias)$")
_LAYER = re.compile(r"^stack\.layers\.(\d+)\.(.+)$")


def timm_name(name: str) -> tuple[str, int | None]:
    """Returns timm's name of a parameter and, for ``attn.qkv``, which third is meant."""
    if table := _TABLES.match(name):
        return f"blocks.{table[1]}.attn.{table[2]}", None
    if projection := _PROJECTION.match(name):
        return f"blocks.{projection[1]}.attn.qkv.{projection[3]}", PROJECTIONS.index(projection[2])
    if (layer := _LAYER.match(name)) and (inner := translate(layer[2], TIMM_NAMES)):
        return f"blocks.{layer[1]}.{inner}", None
    return translate(name, _FIXED) or name, None


def to_timm(state: Mapping[str, Tensor]) -> State:
    """Returns a model's state as timm and the authors' code load it."""
    renamed = to_public(state, timm_name)
    return renamed | ({"pos_embed": renamed["pos_embed"][None]} if "pos_embed" in renamed else {})  # (1, T, D)


def from_timm(state: Mapping[str, Tensor], names: Iterable[str]) -> State:
    """Returns a state of timm under a model's ``names``; weights that have none of them keep theirs."""
    return from_public(state, names, timm_name)
