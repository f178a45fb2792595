"""Equips attention of transformers: chosen by configuration, or written out inside a module (LXMERT, ViLT, BLIP).

An equipped model uses the registered functions ``vlcli_eager`` and ``vlcli_sdpa``; they call the usual function for
modules that are not equipped.
"""

import copy
import inspect
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.foreign.equipment import AttentionEquipper, EquippedAttention, KnownEquipper, is_linear
from vlcli.foreign.places import CACHES, WHERE, bound, cache_of, takes_arguments

TRIPLE = ("query", "key", "value")
TRIPLES = (("q_proj", "k_proj", "v_proj"), TRIPLE)
FUSED = ("Wqkv", "qkv")
OURS = {"eager": "vlcli_eager", "sdpa": "vlcli_sdpa"}


class TransformersEquipper(AttentionEquipper):
    """transformers: any attention that gets its function from ``ALL_ATTENTION_FUNCTIONS``."""

    looks_for = "transformers' attention interface (q_proj, k_proj, v_proj; query, key, value; or Wqkv)"

    def takes(self, module: nn.Module) -> bool:
        return _by_interface(module) and bool(self.projections(module)) and _width(module) > 0

    def refusal(self, module: nn.Module) -> str:
        if not _by_interface(module) or self.takes(module):
            return ""
        names = " nor ".join(", ".join(one) for one in (*TRIPLES, FUSED))
        return f"{type(module).__name__} has neither {names} as linear layers"

    def heads(self, module: nn.Module) -> tuple[int, int]:
        names = self.projections(module)
        inner = getattr(module, names[0]).out_features // (1 if len(names) == 3 else 3)
        return inner // _width(module), _width(module)

    def projections(self, module: nn.Module) -> tuple[str, ...]:
        return next((names for names in (*TRIPLES, *((one,) for one in FUSED)) if is_linear(module, *names)), ())

    def crosses(self, path: str, module: nn.Module) -> bool:
        return super().crosses(path, module) or "key_value_states" in inspect.signature(module.forward).parameters

    def install(self, module: nn.Module, equipped: EquippedAttention) -> None:
        """The registered function finds ``equipped`` by itself."""

    def finish(self, model: nn.Module) -> None:
        from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

        for usual, ours in OURS.items():
            AttentionInterface.register(ours, _eager if usual == "eager" else _sdpa)
            AttentionMaskInterface.register(ours, ALL_MASK_ATTENTION_FUNCTIONS[usual])
        copies: dict[int, Any] = {}  # parts that share a configuration share its copy
        for module in model.modules():
            for name, value in list(vars(module).items()):
                if isinstance(value, PreTrainedConfig):  # other models may be made from the caller's
                    setattr(module, name, copy.deepcopy(value, copies))
            if isinstance(module, PreTrainedModel):
                module.register_forward_pre_hook(_choose)
        _choose(model)


def _by_interface(module: nn.Module) -> bool:
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return hasattr(module, "config") and code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names


def _width(module: nn.Module) -> int:
    width = getattr(module, "head_dim", 0) or getattr(module, "attention_head_size", 0)
    return width if isinstance(width, int) else 0


def _choose(model: nn.Module, *_: Any) -> None:
    # Replaces the names of the usual functions by ours in the configurations of equipped attentions.
    for module in model.modules():
        config = getattr(module, "config", None)
        usual = getattr(config, "_attn_implementation", None)
        if config is None or usual in OURS.values() or not hasattr(module, "position_slot"):
            continue
        if usual not in (None, *OURS):
            what = "An equipped model adds terms to the scores, which this attention function does not do."
            hint = 'call model.set_attn_implementation("sdpa")'
            raise ComponentError(what, where=WHERE, got=str(usual), expected="eager or sdpa", hint=hint)
        config._attn_implementation = OURS[usual or "eager"]


def _eager(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any) -> Any:
    if not hasattr(module, "position_slot"):
        usual: Callable[..., Any] = vars(sys.modules[type(module).__module__])["eager_attention_forward"]
        return usual(module, query, key, value, mask, **options)
    return _attend(module, (query, key, value), mask, False, options)


def _sdpa(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any) -> Any:
    if not hasattr(module, "position_slot"):
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(module, query, key, value, mask, **options)
    causal = options.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    if mask is None and causal and query.shape[2] > 1:  # transformers leaves such a mask to the kernel
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()[None, None]
    return _attend(module, (query, key, value), mask, not options.get("output_attentions"), options)


def _attend(module: Any, parts: tuple[Tensor, Tensor, Tensor], mask: Tensor | None, fused: bool, options: Any) -> Any:
    for name in ("softcap", "s_aux"):
        if options.get(name) is not None:
            raise ComponentError("vlcli does not support this change of the attention scores.", where=WHERE, got=name)
    bias = options.get("position_bias")
    if bias is not None and mask is not None and mask.dtype == torch.bool:
        mask = bias.masked_fill(~mask, torch.finfo(bias.dtype).min)
    elif bias is not None:
        mask = bias if mask is None else mask + bias
    scale = options.get("scaling")
    scale = parts[0].shape[-1] ** -0.5 if scale is None else scale
    equipped: EquippedAttention = module.position_slot
    context, weights = equipped.attend(*parts, mask, scale=scale, dropout=options.get("dropout", 0.0), fused=fused)
    return context.transpose(1, 2).contiguous(), weights


class InlineEquipper(KnownEquipper):
    """transformers, before its attention interface: projections ``query``, ``key``, ``value``, or ``qkv`` in BLIP."""

    looks_for = (
        "the attention of transformers' LXMERT, ViLT, VisualBERT or BLIP (query, key, value; or qkv, projection)"
    )

    parts = frozenset({*TRIPLE, "qkv", "projection"})
    arguments = frozenset({"hidden_states", "context", "attention_mask", *CACHES, "output_attentions", "kwargs"})
    arguments |= {"encoder_hidden_states", "encoder_attention_mask"}

    def resembles(self, module: nn.Module) -> bool:
        if not type(module).__module__.startswith("transformers.") or TransformersEquipper().takes(module):
            return False
        split = is_linear(module, *TRIPLE) and hasattr(module, "attention_head_size")
        return takes_arguments(module, "hidden_states") and (split or _is_fused(module))

    def heads(self, module: Any) -> tuple[int, int]:
        if _is_fused(module):
            return int(module.num_heads), int(module.head_dim)
        return int(module.num_attention_heads), int(module.attention_head_size)

    def projections(self, module: nn.Module) -> tuple[str, ...]:
        return ("qkv",) if _is_fused(module) else TRIPLE

    def install(self, module: nn.Module, equipped: EquippedAttention) -> None:
        module.forward = MethodType(_fused_forward if _is_fused(module) else _forward, module)


def _is_fused(module: nn.Module) -> bool:
    return is_linear(module, "qkv", "projection") and hasattr(module, "num_heads") and hasattr(module, "head_dim")


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
    other = call.get("encoder_hidden_states")
    source = next(one for one in (other, call.get("context"), call["hidden_states"]) if one is not None)
    mask = call.get("attention_mask") if other is None else call.get("encoder_attention_mask")
    q = _split(self, self.query(call["hidden_states"]))
    k, v = _keys_and_values(self, cache_of(call), source, other is not None)
    equipped: EquippedAttention = self.position_slot
    rate, scale = self.dropout.p if self.training else 0.0, self.attention_head_size**-0.5
    context, weights = equipped.attend(q, k, v, mask, scale=scale, dropout=rate, fused=False)
    assert weights is not None
    flat = context.transpose(1, 2).flatten(2)
    silent = takes_arguments(self, "output_attentions") and not call.get("output_attentions")
    return (flat,) if silent else (flat, weights)


def _keys_and_values(module: Any, past: Any, source: Tensor, crossing: bool) -> tuple[Tensor, Tensor]:
    # (B, H, Tk, d), those of earlier calls included; those of another sequence are computed once.
    cache, once = past, crossing and hasattr(past, "cross_attention_cache")
    if hasattr(past, "cross_attention_cache"):
        cache = past.cross_attention_cache if crossing else past.self_attention_cache
    if once and past.is_updated.get(module.layer_idx):
        return cache.layers[module.layer_idx].keys, cache.layers[module.layer_idx].values
    k, v = _split(module, module.key(source)), _split(module, module.value(source))
    if cache is not None:
        k, v = cache.update(k, v, module.layer_idx)
    if once:
        past.is_updated[module.layer_idx] = True
    return k, v


def _split(module: Any, tokens: Tensor) -> Tensor:
    return torch.unflatten(tokens, -1, (-1, module.attention_head_size)).transpose(1, 2)
