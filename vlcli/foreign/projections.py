"""Hooks the tokens and the projections of equipped attentions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.foreign.arguments import bound, cache_of
from vlcli.foreign.equipment import EquippedAttention
from vlcli.foreign.equipper import AttentionEquipper
from vlcli.nn import Attention, Layout


class Arrival:
    """Forward pre-hook of an equipped attention that keeps the tokens that enter it."""

    def __init__(self, equipper: AttentionEquipper, equipped: EquippedAttention) -> None:
        self.equipper, self.equipped = equipper, equipped

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        arguments = bound(module, args, kwargs)
        x, y = self.equipper.tokens(module, arguments)
        layer, cache = getattr(module, "layer_idx", None), cache_of(arguments)
        earlier = None
        if x is y and cache is not None and layer is not None:
            # Asked of this layer: earlier ones have counted this call. A sliding window holds fewer keys than that, and
            # a cache of fixed size has room for more.
            earlier = int(cache.get_seq_length(layer))
        if self.equipped.reads_tokens and earlier:
            raise ComponentError(
                "What this model was equipped with reads all tokens, and a cache holds the earlier ones as keys only.",
                where="vlcli.foreign.equip",
                hint="call the model with use_cache=False",
            )
        self.equipped.begin(x, y, earlier)


class Shift:
    """Forward pre-hook of one projection that replaces its input; role 0 is for queries, 1 for keys, 2 for values."""

    def __init__(self, equipped: EquippedAttention, role: int) -> None:
        self.equipped, self.role = equipped, role

    def __call__(self, module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (self.equipped.inputs()[self.role], *args[1:])


class FusedShift:
    """Forward hook of a fused projection that adds the projection of each input's change."""

    def __init__(self, equipped: EquippedAttention) -> None:
        self.equipped = equipped

    def __call__(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        assert isinstance(module, nn.Linear)
        weights = module.weight.chunk(3)
        parts = [F.linear(one - args[0], weight) for one, weight in zip(self.equipped.inputs(), weights, strict=True)]
        return output + torch.cat(parts, -1)


def shift(attention: nn.Module, names: tuple[str, ...], equipped: EquippedAttention) -> None:
    """Makes the projections of an attention read the inputs that the encoding shifts."""
    layers = [getattr(attention, name) for name in names]
    if len(layers) == 1:
        layers[0].register_forward_hook(FusedShift(equipped))
    else:
        for role, layer in enumerate(layers):
            layer.register_forward_pre_hook(Shift(equipped, role))


class Placed:
    """Forward pre-hook that passes a projection by modality the layout of its tokens."""

    def __init__(self, equipped: EquippedAttention, of_keys: bool) -> None:
        self.equipped, self.of_keys = equipped, of_keys

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        layout: Layout = self.equipped.during().layouts[self.of_keys]
        return args, {**kwargs, "layout": layout}


def replace(attention: nn.Module, names: tuple[str, ...], equipped: EquippedAttention, by: Attention) -> None:
    """Replaces the projections of an attention by those of ``by``, which keep the weights.

    Raises:
        ComponentError: ``by`` has no projections.
    """
    for number, name in enumerate(names):
        projection = by.projection(getattr(attention, name))
        if projection is None:
            raise ComponentError(
                "Only attentions that differ in their projections can be added to a foreign model.",
                where="vlcli.foreign.equip",
                got=type(by).__name__,
                expected="one whose `projection` returns a module, as that of 'disentangled' does",
            )
        projection.register_forward_pre_hook(Placed(equipped, len(names) == 3 and number > 0), with_kwargs=True)
        setattr(attention, name, projection)
