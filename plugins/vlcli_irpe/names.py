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


def fit_tables(state: dict[str, Tensor], own: Mapping[str, Tensor], report: list[str]) -> dict[str, Tensor]:
    """Tables with or without the bucket of pairs off the plane, made to fit; classifiers of other classes left out.

    A missing extra bucket is filled with zeros, as tables start; a superfluous one is dropped.
    """
    made = dict(state)
    for name, value in state.items():
        if name not in own or value.shape == own[name].shape:
            continue
        if ".lookup_table_" in name:
            made[name] = _fit(name, value, own[name], report)
        elif name.startswith("head"):
            report.append(f"{name}: left out, {len(value)} classes and not {len(own[name])}")
            del made[name]
    return made


def _fit(name: str, value: Tensor, wanted: Tensor, report: list[str]) -> Tensor:
    differing = [axis for axis, (a, b) in enumerate(zip(value.shape, wanted.shape, strict=False)) if a != b]
    if value.dim() != wanted.dim() or len(differing) != 1 or differing[0] == 0:
        return value
    axis, (has, needs) = differing[0], (value.shape[differing[0]], wanted.shape[differing[0]])
    if has == needs + 1:
        report.append(f"{name}: the bucket of pairs off the plane dropped")
        return value.narrow(axis, 0, needs)
    if has == needs - 1:
        report.append(f"{name}: a zero bucket for pairs off the plane added")
        blank = value.new_zeros(*value.shape[:axis], 1, *value.shape[axis + 1 :])
        return torch.cat([value, blank], axis)
    return value
