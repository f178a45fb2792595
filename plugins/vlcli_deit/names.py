"""Parameter names: ours, and those of timm's vision transformers with the iRPE authors' tables among them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

_FIXED = {
    "patch.": "patch_embed.proj.",
    "stack.norm.": "norm.",
    "positions.0.table.weight": "pos_embed",
}
_BLOCK = {
    "self_attention.norm.": "norm1.",
    "self_attention.attention.dense.": "attn.proj.",
    "feed_forward.norm.": "norm2.",
    "feed_forward.inner.": "mlp.fc1.",
    "feed_forward.outer.": "mlp.fc2.",
}
_TABLES = re.compile(r"^(stack\.position\.(?:parts\.\d+\.)?)layers\.(\d+)\.(rpe_[qkv]\..+)$")
_PROJECTION = re.compile(r"^stack\.layers\.(\d+)\.self_attention\.attention\.(query|key|value)\.(weight|bias)$")
_ORDER = ("query", "key", "value")


def has_timm_names(state: Iterable[str]) -> bool:
    """Whether a state is laid out as timm's vision transformers are."""
    return any(name.startswith(("blocks.", "patch_embed.")) for name in state)


def timm_name(name: str) -> str:
    """The public name of one of our parameters; ``query``, ``key`` and ``value`` are parts of one ``qkv``."""
    for ours, theirs in _FIXED.items():
        if name.startswith(ours):
            return theirs + name[len(ours) :]
    if found := _TABLES.match(name):
        return f"blocks.{found[2]}.attn.{found[3]}"
    if found := _PROJECTION.match(name):
        return f"blocks.{found[1]}.attn.qkv.{found[3]}"
    if found := re.match(r"^stack\.layers\.(\d+)\.(.+)$", name):
        for ours, theirs in _BLOCK.items():
            if found[2].startswith(ours):
                return f"blocks.{found[1]}.{theirs}{found[2][len(ours) :]}"
    return name


def to_timm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state of ours as timm and the authors' code load it."""
    made: dict[str, Tensor] = {}
    parts: dict[str, dict[str, Tensor]] = {}
    for name, value in state.items():
        theirs = timm_name(name)
        if found := _PROJECTION.match(name):
            parts.setdefault(theirs, {})[found[2]] = value
        else:
            made[theirs] = value[None] if theirs == "pos_embed" else value
    made.update({name: torch.cat([part[side] for side in _ORDER]) for name, part in parts.items()})
    return made


def from_timm(state: Mapping[str, Tensor], own: Iterable[str]) -> dict[str, Tensor]:
    """A public state under our names; what we have no name for keeps its own.

    Args:
        state: by timm's names.
        own: the names of our model.
    """
    made, used = {}, set()
    for name in own:
        theirs = timm_name(name)
        if theirs not in state:
            continue
        used.add(theirs)
        value = state[theirs]
        if found := _PROJECTION.match(name):
            value = value.chunk(3)[_ORDER.index(found[2])]
        made[name] = value[0] if theirs == "pos_embed" else value
    return {**made, **{name: value for name, value in state.items() if name not in used}}
