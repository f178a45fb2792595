"""Position encodings for models made elsewhere: ``vlcli_irpe.equip(model, method="product", sides=["key"])``.

Attention is found by its shape: timm's (one ``qkv`` layer), or any model of transformers that chooses its attention
function by configuration. Its weights, names and everything else stay as they are; tables are added under the names of
the iRPE release (``rpe_k.lookup_table_weight`` beside the projections).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn import AttentionShape, Layout, PairwisePosition
from vlcli.registry import Spec
from vlcli_irpe.lookup import BucketPosition

M = TypeVar("M", bound=nn.Module)
IMPLEMENTATION = "vlcli_position"


class Equipment:
    """What the attentions of one equipped model share: the encoding, and the grid of the picture at hand.

    Args:
        position: the encoding.
    """

    def __init__(self, position: PairwisePosition) -> None:
        self.position = position
        self.grid: tuple[int, int] | None = None
        self._state: Any = None
        self._layouts: dict[tuple[Any, ...], Layout] = {}

    def see(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        """Forward hook of the convolution whose map becomes the tokens."""
        self.grid = (output.shape[-2], output.shape[-1])

    def state(self, x: Tensor, layer: int) -> Any:
        """What the encoding prepared for this picture: anew at the first layer, kept for the others."""
        if layer == 0 or self._state is None:
            layout = self._layout(x)
            self._state = self.position.prepare(x, x, layout, layout)
        return self._state

    def _layout(self, x: Tensor) -> Layout:
        if self.grid is None:
            raise ComponentError("The model has not seen a picture yet.", hint="call the whole model, not a part of it")
        rows, columns = self.grid
        skip = x.shape[1] - rows * columns
        if skip < 0:
            raise ComponentError(
                "The model leaves out or merges patches, so its tokens are no full grid.",
                where="vlcli_irpe.equip",
                got=f"{x.shape[1]} tokens",
                expected=f"{rows}x{columns} and special tokens before them",
            )
        key = (rows, columns, skip, x.device)
        if key not in self._layouts:
            with torch.inference_mode(False):  # it is kept, and training may be next
                self._layouts[key] = Layout.for_grid(rows, columns, skip=skip, device=x.device)
        return self._layouts[key]


class EquippedAttention:
    """One attention's place in the equipment: which layer of the encoding it takes."""

    def __init__(self, equipment: Equipment, layer: int) -> None:
        self.equipment, self.layer = equipment, layer

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        *,
        scale: float,
        dropout: float,
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention with the encoding: context (B, H, T, d), and probabilities where asked for."""
        position, layer = self.equipment.position, self.layer
        state = self.equipment.state(_tokens(q), layer)
        q, k = position.rotate(q, k, state, layer)
        added = _joined(position.logits(q, k, state, layer), mask, q.dtype)
        if not (weights or position.uses_weights):
            return F.scaled_dot_product_attention(q, k, v, added, dropout, scale=scale), None
        scores = (q * scale) @ k.transpose(-1, -2)
        probabilities = (scores if added is None else scores + added).softmax(-1)
        dropped = F.dropout(probabilities, dropout)
        more = position.values(dropped, state, layer)
        context = dropped @ v
        return (context if more is None else context + more), probabilities


def equip(model: M, position: Spec | str | PairwisePosition | None = None, **options: Any) -> M:
    """Give a model of timm or transformers a relative position encoding, in place.

    Args:
        model: a vision transformer whose tokens are one full grid behind special tokens, or a DETR, whose encoder is
            equipped.
        position: a registered pairwise encoding or a module; None: iRPE.
        options: of the encoding, as a recipe would set them.

    Returns:
        The same model.

    Raises:
        ComponentError: no attention was found that it could be added to; the message says what was looked for.
    """
    if any(isinstance(getattr(module, "position_slot", None), EquippedAttention) for module in model.modules()):
        raise ComponentError("The model is already equipped.", where="vlcli_irpe.equip")
    convolution = _map_of(model)
    timm = [module for module in model.modules() if _is_timm(module)]
    other = [] if timm else _transformers_attention(model)
    found = timm or other
    if convolution is None or not found:
        raise _refusal(model, bool(found))
    equipment = Equipment(_position(position, options, found))
    convolution.register_forward_hook(equipment.see)
    for layer, module in enumerate(found):
        module.__dict__["position_slot"] = EquippedAttention(equipment, layer)  # not a submodule
        if timm:
            module.forward = MethodType(_timm_forward, module)
    _adopt(model, equipment.position, found)
    if other:
        _choose_implementation(model)
    return model


def _position(position: Any, options: dict[str, Any], found: list[nn.Module]) -> PairwisePosition:
    if isinstance(position, PairwisePosition):
        return position
    first: Any = found[0]  # of timm or transformers
    inner = first.qkv.out_features // 3 if hasattr(first, "qkv") else first.q_proj.out_features
    heads = inner // _head_dim(first)
    shape = AttentionShape(inner, heads, len(found))
    spec = {"name": "irpe"} if position is None else registry.as_spec(position)
    made = registry.positions.build({**spec, **options}, shape)
    if not isinstance(made, PairwisePosition) or type(made).inputs is not PairwisePosition.inputs:
        raise ComponentError(
            "Only encodings inside attention can be added to a foreign model.", where="vlcli_irpe.equip", got=str(spec)
        )
    weight = next(first.parameters())
    return made.to(weight.device, weight.dtype)


def _head_dim(module: Any) -> int:
    if isinstance(getattr(module, "head_dim", None), int):
        return int(module.head_dim)
    return int(module.qkv.in_features // module.num_heads)


def _adopt(model: nn.Module, position: PairwisePosition, found: Iterable[nn.Module]) -> None:
    """Register the encoding's parameters with the model: by layer as released, or as one module."""
    if not isinstance(position, BucketPosition):
        model.add_module("relative_position", position)
        return
    for module, layer in zip(found, position.layers, strict=True):
        for name, tables in layer.named_children():
            module.add_module(name, tables)


def _map_of(model: nn.Module) -> nn.Module | None:
    """The convolution whose output map is flattened into tokens."""
    names = ("input_projection", "patch_embed.proj", "patch_embeddings.projection", "patch_embedding", "conv_proj")
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d) and name.endswith(names):
            return module
    return None


def _is_timm(module: nn.Module) -> bool:
    parts = all(isinstance(getattr(module, name, None), nn.Linear) for name in ("qkv", "proj"))
    if not (parts and hasattr(module, "num_heads")):
        return False
    known = {"x", "attn_mask", "is_causal"}
    return set(inspect.signature(module.forward).parameters) <= known and not hasattr(
        module, "relative_position_bias_table"
    )


def _timm_forward(self: Any, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    """Timm's attention with the encoding between its projections."""
    if is_causal:
        raise ComponentError("An equipped model looks at whole pictures; causal attention is not for it.")
    q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    q, k = _through(self, "q_norm", q), _through(self, "k_norm", k)
    dropout = self.attn_drop.p if self.training else 0.0
    context, _ = self.position_slot.attend(q, k, v, attn_mask, scale=float(self.scale), dropout=dropout)
    out = _through(self, "norm", context.transpose(1, 2).flatten(2))
    if getattr(self, "gate", None) is not None:
        out = out * self.gate(x).sigmoid()
    return _through(self, "proj_drop", self.proj(out))


def _through(module: nn.Module, name: str, x: Tensor) -> Tensor:
    part = getattr(module, name, None)
    return x if part is None else part(x)


def _transformers_attention(model: nn.Module) -> list[nn.Module]:
    """Self-attentions over the picture of a transformers model; in encoder-decoders those of the encoder."""
    found = []
    for name, module in model.named_modules():
        split = all(isinstance(getattr(module, part, None), nn.Linear) for part in ("q_proj", "k_proj", "v_proj"))
        crossing = "key_value_states" in inspect.signature(module.forward).parameters
        if split and hasattr(module, "config") and not crossing and "decoder" not in name.split("."):
            found.append(module)
    return found


def _choose_implementation(model: Any) -> None:
    """Have transformers call our attention function; modules without a slot go on to the usual one."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(IMPLEMENTATION, _transformers_function)
    AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
    for module in model.modules():
        if hasattr(module, "config") and hasattr(module.config, "_attn_implementation"):
            module.config._attn_implementation = IMPLEMENTATION


def _transformers_function(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    slot = getattr(module, "position_slot", None)
    if slot is None:
        usual = _usual_function()
        return usual(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **others)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    wanted = bool(others.get("output_attentions"))
    context, weights = slot.attend(query, key, value, attention_mask, scale=scale, dropout=dropout, weights=wanted)
    return context.transpose(1, 2).contiguous(), weights


def _usual_function() -> Callable[..., tuple[Tensor, Tensor | None]]:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    out: Callable[..., tuple[Tensor, Tensor | None]] = sdpa_attention_forward
    return out


def _tokens(q: Tensor) -> Tensor:
    """(B, T, dim): encodings prepared from a foreign model see the queries, since the tokens do not come this far."""
    return q.transpose(1, 2).flatten(2)


def _joined(term: Tensor | None, mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if mask is not None and mask.dtype == torch.bool:
        blank = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
        mask = blank.masked_fill(~mask, torch.finfo(dtype).min)
    if term is None or mask is None:
        return mask if term is None else term
    return term + mask


def _refusal(model: nn.Module, has_attention: bool) -> ComponentError:
    what = "no convolution that cuts patches" if has_attention else "no self-attention over a picture's tokens"
    return ComponentError(
        f"{type(model).__name__} cannot be equipped: {what} was found.",
        where="vlcli_irpe.equip",
        got=", ".join(sorted({type(m).__name__ for m in model.modules() if "ttention" in type(m).__name__})) or "none",
        expected="timm's Attention (qkv, proj), or transformers' (q_proj, k_proj, v_proj) in its vision encoder",
        hint="windowed or pooled attention needs a model of vlcli (vlcli ls models)",
    )
