"""Equips timm's ``Attention``, ``AttentionRope``, ``EvaAttention`` and modules written like them."""

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.foreign.equipment import EquippedAttention, KnownEquipper, is_linear
from vlcli.foreign.places import bound, takes_arguments

SPLIT = ("q_proj", "k_proj", "v_proj")


class TimmEquipper(KnownEquipper):
    """timm: one ``qkv`` layer or three, an output layer ``proj``, with or without a rotation of its own."""

    looks_for = "timm's Attention (qkv or q_proj, k_proj, v_proj; proj; num_heads)"

    parts = frozenset({"qkv", *SPLIT, "q_bias", "k_bias", "v_bias", "q_norm", "k_norm", "norm", "gate", "proj"})
    arguments = frozenset({"x", "attn_mask", "is_causal", "rope"})

    def resembles(self, module: nn.Module) -> bool:
        parts = is_linear(module, "proj") and (is_linear(module, "qkv") or is_linear(module, *SPLIT))
        return parts and hasattr(module, "num_heads") and takes_arguments(module, "x")

    def heads(self, module: Any) -> tuple[int, int]:
        inner = module.qkv.out_features // 3 if is_linear(module, "qkv") else module.q_proj.out_features
        return int(module.num_heads), int(inner // module.num_heads)

    def projections(self, module: nn.Module) -> tuple[str, ...]:
        return ("qkv",) if is_linear(module, "qkv") else SPLIT  # timm calls EVA's fused one as a function

    def install(self, module: nn.Module, equipped: EquippedAttention) -> None:
        module.forward = MethodType(_forward, module)


def _forward(self: Any, *args: Any, **kwargs: Any) -> Tensor:
    call = bound(self, args, kwargs)
    x, rope, attn_mask = call["x"], call.get("rope"), call.get("attn_mask")
    if call.get("is_causal"):
        raise ComponentError("An equipped model looks at whole pictures; causal attention is not for it.")
    q, k, v = _projected(self, x)  # (B, H, T, d); keys and values may have fewer heads
    q, k = _through(self, "q_norm", q), _through(self, "k_norm", k)
    if rope is not None:
        from timm.layers import apply_rot_embed_cat

        front, half = int(self.num_prefix_tokens), bool(getattr(self, "rotate_half", False))
        q, k = (
            torch.cat([one[:, :, :front], apply_rot_embed_cat(one[:, :, front:], rope, half=half)], 2).type_as(v)
            for one in (q, k)
        )
    dropout = self.attn_drop.p if self.training else 0.0
    fused = bool(getattr(self, "fused_attn", True))
    equipped: EquippedAttention = self.position_slot
    context, _ = equipped.attend(q, k, v, attn_mask, scale=float(self.scale), dropout=dropout, fused=fused)
    out = _through(self, "norm", context.transpose(1, 2).flatten(2))
    if getattr(self, "gate", None) is not None:
        out = out * self.gate(x).sigmoid()
    return _through(self, "proj_drop", self.proj(out))


def _projected(module: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if not is_linear(module, "qkv"):
        width = module.q_proj.out_features // module.num_heads
        q, k, v = (getattr(module, name)(x).unflatten(-1, (-1, width)).transpose(1, 2) for name in SPLIT)
        return q, k, v
    fused = module.qkv(x)
    if getattr(module, "q_bias", None) is not None:  # EVA has none on keys
        fused = fused + torch.cat((module.q_bias, module.k_bias, module.v_bias))
    q, k, v = fused.unflatten(-1, (3, module.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    return q, k, v


def _through(module: nn.Module, name: str, x: Tensor) -> Tensor:
    part = getattr(module, name, None)
    return x if part is None else part(x)
