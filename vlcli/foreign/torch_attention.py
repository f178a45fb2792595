"""Equips ``torch.nn.MultiheadAttention``: torchvision's ViT, torch's encoder layers, and what is built from it."""

from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.foreign.equipment import AttentionEquipper, EquippedAttention, joined


class TorchEquipper(AttentionEquipper):
    """torch: self-attention or cross-attention of ``nn.MultiheadAttention``, batch first or not."""

    looks_for = "torch.nn.MultiheadAttention"

    def takes(self, module: nn.Module) -> bool:
        whole = isinstance(module, nn.MultiheadAttention) and type(module).forward is nn.MultiheadAttention.forward
        return whole and not self._adds(module)

    def refusal(self, module: nn.Module) -> str:
        return "it adds keys of its own (add_bias_kv, add_zero_attn)" if self._adds(module) else ""

    @staticmethod
    def _adds(module: Any) -> bool:
        return isinstance(module, nn.MultiheadAttention) and (module.bias_k is not None or module.add_zero_attn)

    def heads(self, module: Any) -> tuple[int, int]:
        return int(module.num_heads), int(module.head_dim)

    def tokens(self, module: Any, arguments: Any) -> tuple[Tensor, Tensor]:
        q, k = arguments["query"], arguments["key"]
        return _batched(module, q), _batched(module, k)

    def install(self, module: nn.Module, equipped: EquippedAttention) -> None:
        module.forward = MethodType(_forward, module)


def _batched(module: Any, tokens: Tensor) -> Tensor:
    if tokens.dim() != 3:
        raise ComponentError("An equipped attention takes batches.", got=f"{tokens.dim()} dimensions", expected="3")
    return tokens if module.batch_first else tokens.transpose(0, 1)


def _forward(
    self: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,  # noqa: ARG001 (a hint: the mask is given with it)
) -> tuple[Tensor, Tensor | None]:
    tokens = [_batched(self, one) for one in (query, key, value)]
    separate = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
    weights_in = separate if self.in_proj_weight is None else self.in_proj_weight.chunk(3)
    biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
    q, k, v = (
        F.linear(one, weight, bias).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        for one, weight, bias in zip(tokens, weights_in, biases, strict=True)
    )
    mask = _mask(self, attn_mask, key_padding_mask, q.dtype)
    equipped: EquippedAttention = self.position_slot
    rate, scale = self.dropout if self.training else 0.0, self.head_dim**-0.5
    context, weights = equipped.attend(q, k, v, mask, scale=scale, dropout=rate, fused=not need_weights)
    out = self.out_proj(context.transpose(1, 2).flatten(2))
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    return (out if self.batch_first else out.transpose(0, 1)), weights if need_weights else None


def _mask(module: Any, mask: Tensor | None, padding: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    # In torch's masks True means hidden.
    if mask is not None:
        mask = ~mask if mask.dtype == torch.bool else mask
        mask = mask.unflatten(0, (-1, module.num_heads)) if mask.dim() == 3 else mask
    if padding is not None:
        padding = (~padding if padding.dtype == torch.bool else padding)[:, None, None]
    return joined(joined(None, padding, dtype), mask, dtype)
