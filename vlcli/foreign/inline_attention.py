"""Equips attention that transformers writes out inside its modules: LXMERT, ViLT, VisualBERT, BLIP."""

from __future__ import annotations

from types import MethodType
from typing import Any

from torch import Tensor, nn

from vlcli.foreign.arguments import CACHES, bound, cache_of, takes_arguments, unknown_parts
from vlcli.foreign.equipment import EquippedAttention
from vlcli.foreign.equipper import AttentionEquipper
from vlcli.foreign.transformers_attention import TransformersEquipper

TRIPLE = ("query", "key", "value")
PARTS = {*TRIPLE, "qkv", "projection"}
KNOWN = {
    "hidden_states",
    "context",
    "attention_mask",
    "encoder_hidden_states",
    "encoder_attention_mask",
    *CACHES,
    "output_attentions",
    "kwargs",
}


class InlineEquipper(AttentionEquipper):
    """transformers, before its attention interface: projections ``query``, ``key``, ``value``, or ``qkv`` in BLIP."""

    looks_for = (
        "the attention of transformers' LXMERT, ViLT, VisualBERT or BLIP (query, key, value; or qkv, projection)"
    )

    def takes(self, module: nn.Module) -> bool:
        return self._near(module) and not unknown_parts(module, PARTS, KNOWN)

    def refusal(self, module: nn.Module) -> str:
        return f"{type(module).__name__} has {unknown_parts(module, PARTS, KNOWN)}" if self._near(module) else ""

    def _near(self, module: nn.Module) -> bool:
        if not type(module).__module__.startswith("transformers.") or TransformersEquipper().takes(module):
            return False
        if not takes_arguments(module, "hidden_states"):
            return False
        split = all(isinstance(getattr(module, name, None), nn.Linear) for name in TRIPLE)
        return _is_fused(module) or (split and hasattr(module, "attention_head_size"))

    def heads(self, module: Any) -> tuple[int, int]:
        if _is_fused(module):
            return int(module.num_heads), int(module.head_dim)
        return int(module.num_attention_heads), int(module.attention_head_size)

    def projections(self, module: nn.Module) -> tuple[str, ...]:
        return ("qkv",) if _is_fused(module) else TRIPLE

    def install(self, module: nn.Module, equipped: EquippedAttention) -> None:
        module.forward = MethodType(_fused_forward if _is_fused(module) else _forward, module)


def _is_fused(module: nn.Module) -> bool:
    linear = all(isinstance(getattr(module, name, None), nn.Linear) for name in ("qkv", "projection"))
    return linear and hasattr(module, "num_heads") and hasattr(module, "head_dim")


def _fused_forward(self: Any, hidden_states: Tensor, **_: Any) -> tuple[Tensor, Tensor | None]:
    # BLIP's vision attention
    q, k, v = self.qkv(hidden_states).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    equipped: EquippedAttention = self.position_slot
    rate = self.dropout.p if self.training else 0.0
    context, weights = equipped.attend(q, k, v, None, scale=float(self.scale), dropout=rate, fused=False)
    return self.projection(context.transpose(1, 2).flatten(2)), weights


def _forward(self: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
    # LXMERT, ViLT, VisualBERT and BLIP's text model: heads side by side (B, T, dim), and probabilities
    call = bound(self, args, kwargs)
    q = _split(self, self.query(call["hidden_states"]))
    k, v, mask = _asked(self, call)
    equipped: EquippedAttention = self.position_slot
    rate = self.dropout.p if self.training else 0.0
    scale = self.attention_head_size**-0.5
    context, weights = equipped.attend(q, k, v, mask, scale=scale, dropout=rate, fused=False)
    assert weights is not None
    optional = takes_arguments(self, "output_attentions")
    flat = context.transpose(1, 2).flatten(2)
    return (flat,) if optional and not call.get("output_attentions") else (flat, weights)


def _asked(module: Any, call: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor | None]:
    other = call.get("encoder_hidden_states")
    source = next(one for one in (other, call.get("context"), call["hidden_states"]) if one is not None)
    mask = call.get("attention_mask") if other is None else call.get("encoder_attention_mask")
    past = cache_of(call)
    if past is None:
        return _split(module, module.key(source)), _split(module, module.value(source)), mask
    return *_cached(module, past, source, other is not None), mask  # (B, H, Tk, d), those of earlier calls included


def _cached(module: Any, past: Any, source: Tensor, crossing: bool) -> tuple[Tensor, Tensor]:
    # Keys and values of another sequence are computed once.
    pair = hasattr(past, "cross_attention_cache")
    cache = past if not pair else past.cross_attention_cache if crossing else past.self_attention_cache
    if crossing and pair and past.is_updated.get(module.layer_idx):
        return cache.layers[module.layer_idx].keys, cache.layers[module.layer_idx].values
    k, v = _split(module, module.key(source)), _split(module, module.value(source))
    k, v = cache.update(k, v, module.layer_idx)
    if crossing and pair:
        past.is_updated[module.layer_idx] = True
    return k, v


def _split(module: Any, tokens: Tensor) -> Tensor:
    out: Tensor = tokens.unflatten(-1, (-1, module.attention_head_size)).transpose(1, 2)
    return out
