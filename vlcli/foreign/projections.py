"""Hooks of equipped attentions: on the tokens that enter them, and on what they project them with."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.foreign.equipment import EquippedAttention
from vlcli.foreign.equipper import AttentionEquipper, bound, cache_of
from vlcli.nn import Attention, Layout


class Arrival:
    """Forward pre-hook of an equipped attention: notes the tokens that enter it.

    Args:
        equipper: of its style.
        place: its own.
    """

    def __init__(self, equipper: AttentionEquipper, place: EquippedAttention) -> None:
        self.equipper, self.place = equipper, place

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Called by torch."""
        arguments = bound(module, args, kwargs)
        x, y = self.equipper.tokens(module, arguments)
        earlier = _earlier(module, cache_of(arguments)) if x is y else None
        if self.place.reads_tokens and earlier:
            raise ComponentError(
                "What this model was equipped with reads all tokens, and a cache holds the earlier ones as keys only.",
                where="vlcli.foreign.equip",
                hint="call the model with use_cache=False",
            )
        self.place.begin(x, y, earlier)


def _earlier(module: nn.Module, cache: Any) -> int | None:
    """Tokens that a cache has seen before this call, by this layer: earlier ones have counted this call already.

    A sliding window holds fewer keys than that, and a cache of fixed size has room for more.
    """
    layer = getattr(module, "layer_idx", None)
    return None if cache is None or layer is None else int(cache.get_seq_length(layer))


class Shift:
    """Forward pre-hook of one projection: hands it what the encoding made of its input.

    Args:
        place: of the attention.
        role: 0 for queries, 1 for keys, 2 for values.
    """

    def __init__(self, place: EquippedAttention, role: int) -> None:
        self.place, self.role = place, role

    def __call__(self, module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Called by torch."""
        return (self.place.inputs()[self.role], *args[1:])


class FusedShift:
    """Forward hook of a projection that makes queries, keys and values at once: adds what the shifts make of each.

    Args:
        place: of the attention.
    """

    def __init__(self, place: EquippedAttention) -> None:
        self.place = place

    def __call__(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Called by torch."""
        assert isinstance(module, nn.Linear)
        weights = module.weight.chunk(3)
        parts = [F.linear(own - args[0], part) for own, part in zip(self.place.inputs(), weights, strict=True)]
        return output + torch.cat(parts, -1)


def shift(attention: nn.Module, names: tuple[str, ...], place: EquippedAttention) -> None:
    """Have the projections of an attention read what the encoding makes of their inputs."""
    layers = [getattr(attention, name) for name in names]
    if len(layers) == 1:
        layers[0].register_forward_hook(FusedShift(place))
    else:
        for role, layer in enumerate(layers):
            layer.register_forward_pre_hook(Shift(place, role))


class Placed:
    """Forward pre-hook of a projection by modality: tells it where its tokens stand.

    Args:
        place: of the attention.
        asked: whether its tokens are those of the keys.
    """

    def __init__(self, place: EquippedAttention, asked: bool) -> None:
        self.place, self.asked = place, asked

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Called by torch."""
        layout: Layout = self.place.during().layouts[self.asked]
        return args, {**kwargs, "layout": layout}


def replace(attention: nn.Module, names: tuple[str, ...], place: EquippedAttention, by: Attention) -> None:
    """Put the projections of ``by`` in place of an attention's own, whose weights they keep.

    Raises:
        ComponentError: ``by`` is no attention whose difference lies in its projections.
    """
    for number, name in enumerate(names):
        made = by.projection(getattr(attention, name))
        if made is None:
            raise ComponentError(
                "Only attentions that differ in their projections can be added to a foreign model.",
                where="vlcli.foreign.equip",
                got=type(by).__name__,
                expected="one whose `projection` returns a module, as that of 'disentangled' does",
            )
        made.register_forward_pre_hook(Placed(place, len(names) == 3 and number > 0), with_kwargs=True)
        setattr(attention, name, made)
