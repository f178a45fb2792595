"""timm's attention: ``Attention``, ``AttentionRope``, ``EvaAttention``, and modules written like them."""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.foreign.equipment import EquippedAttention
from vlcli.foreign.equipper import AttentionEquipper, bound, own_parts, signature, takes_arguments

KNOWN = {"x", "attn_mask", "is_causal", "rope"}
PARTS = {"qkv", "q_proj", "k_proj", "v_proj", "q_bias", "k_bias", "v_bias", "q_norm", "k_norm", "norm", "gate", "proj"}
SPLIT = ("q_proj", "k_proj", "v_proj")


class TimmEquipper(AttentionEquipper):
    """timm: one ``qkv`` layer or three, an output layer ``proj``, with or without a rotation of its own."""

    looks_for = "timm's Attention (qkv or q_proj, k_proj, v_proj; proj; num_heads)"

    def takes(self, module: nn.Module) -> bool:
        """By its parts and the parameters of its ``forward``."""
        return self._near(module) and not self._strange(module)

    def refusal(self, module: nn.Module) -> str:
        """What it has that timm's Attention has not."""
        return f"{type(module).__name__} has {self._strange(module)}" if self._near(module) else ""

    @staticmethod
    def _near(module: nn.Module) -> bool:
        parts = _linear(module, "proj") and (_linear(module, "qkv") or all(_linear(module, one) for one in SPLIT))
        return parts and hasattr(module, "num_heads") and takes_arguments(module, "x")

    @staticmethod
    def _strange(module: nn.Module) -> str:
        arguments = set(signature(type(module).forward).parameters) - KNOWN - {"self"}
        parts = own_parts(module) - PARTS
        words = [f"`{one}`" for one in sorted(parts)] + [f"an argument `{one}`" for one in sorted(arguments)]
        return ", ".join(words)

    def heads(self, module: Any) -> tuple[int, int]:
        """From ``num_heads`` and the width of what makes the queries."""
        inner = module.qkv.out_features // 3 if _linear(module, "qkv") else module.q_proj.out_features
        return int(module.num_heads), int(inner // module.num_heads)

    def projections(self, module: nn.Module) -> tuple[str, ...]:
        """The fused layer or three; a fused one whose bias is kept apart (EVA) is called as a function by timm."""
        return ("qkv",) if _linear(module, "qkv") else SPLIT

    def install(self, module: nn.Module, place: EquippedAttention) -> None:
        """Its own steps, with the encoding between the projections."""
        module.forward = MethodType(_forward, module)


def _linear(module: nn.Module, name: str) -> bool:
    return isinstance(getattr(module, name, None), nn.Linear)


def _forward(self: Any, *args: Any, **kwargs: Any) -> Tensor:
    """The attention of ``self``: tokens (B, T, dim)."""
    call = bound(self, args, kwargs)
    x, rope, attn_mask = call["x"], call.get("rope"), call.get("attn_mask")
    if call.get("is_causal"):
        raise ComponentError("An equipped model looks at whole pictures; causal attention is not for it.")
    q, k, v = _projected(self, x)
    q, k = _through(self, "q_norm", q), _through(self, "k_norm", k)
    if rope is not None:
        q, k = (_turned(self, part, rope).type_as(v) for part in (q, k))
    dropout = self.attn_drop.p if self.training else 0.0
    fused = bool(getattr(self, "fused_attn", True))
    place: EquippedAttention = self.position_slot
    context, _ = place.attend(q, k, v, attn_mask, scale=float(self.scale), dropout=dropout, fused=fused)
    out = _through(self, "norm", context.transpose(1, 2).flatten(2))
    if getattr(self, "gate", None) is not None:
        out = out * self.gate(x).sigmoid()
    return _through(self, "proj_drop", self.proj(out))


def _projected(module: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (B, H, T, d); keys and values may have fewer heads."""
    if not _linear(module, "qkv"):
        width = module.q_proj.out_features // module.num_heads
        q, k, v = (getattr(module, name)(x).unflatten(-1, (-1, width)).transpose(1, 2) for name in SPLIT)
        return q, k, v
    made = module.qkv(x)
    if getattr(module, "q_bias", None) is not None:  # EVA has none on keys
        made = made + torch.cat((module.q_bias, module.k_bias, module.v_bias))
    q, k, v = made.unflatten(-1, (3, module.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    return q, k, v


def _turned(module: Any, part: Tensor, rope: Tensor) -> Tensor:
    """Queries or keys behind the special tokens, turned by the model's own rotation."""
    from timm.layers import apply_rot_embed_cat

    front = int(module.num_prefix_tokens)
    half = bool(getattr(module, "rotate_half", False))
    return torch.cat([part[:, :, :front], apply_rot_embed_cat(part[:, :, front:], rope, half=half)], 2)


def _through(module: nn.Module, name: str, x: Tensor) -> Tensor:
    part = getattr(module, name, None)
    return x if part is None else part(x)
