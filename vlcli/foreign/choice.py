"""Lists the stacks of a foreign model, and says which of them an encoding has an effect in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from vlcli import registry
from vlcli.foreign.declared_places import GivenPlaces
from vlcli.foreign.joint import CrossPlaces
from vlcli.foreign.places import TokenPlaces, WordPlaces
from vlcli.foreign.sources import Sources
from vlcli.foreign.stacks import AttentionStack, find_stacks
from vlcli.nn import Attention, AttentionShape, Layout, PairwisePosition
from vlcli.registry import Spec

Tokens = TokenPlaces | Layout | None
WHERE = "vlcli.foreign.equip"
Maker = Callable[[AttentionShape], nn.Module]


def stacks(
    model: nn.Module,
    encoding: Spec | str | PairwisePosition | None = None,
    *,
    tokens: Tokens = None,
    keys: Tokens = None,
    special_ids: tuple[int, ...] | None = None,
    **options: Any,
) -> list[AttentionStack]:
    """Returns every stack of attention in a model of another library; ``refusal`` says why one cannot be equipped.

    Args:
        model: of timm, transformers, torchvision or another library.
        encoding: what would be added; None: anything.
        tokens: positions of the tokens, instead of those that the model gives.
        keys: positions of the keys of cross-attention if the model cannot give them.
        special_ids: ids of words without a position; None: those that the model's configuration names.
        options: of the encoding.

    Returns:
        Stacks in the order of their first layers; printed, each is one line.
    """
    every = placed_stacks(model, tokens, keys, special_ids)
    if encoding is not None:
        _, maker = maker_of(encoding, options)
        for stack in every:
            stack.refusal = stack.refusal or objection(stack, maker(stack.shape()))
    return every


def placed_stacks(
    model: nn.Module, tokens: Tokens, keys: Tokens, special: tuple[int, ...] | None
) -> list[AttentionStack]:
    """Returns all stacks with the positions that the caller or the model gives."""
    of_tokens, of_keys = (GivenPlaces(one) if isinstance(one, Layout) else one for one in (tokens, keys))
    every = find_stacks(model, of_tokens, special)
    for stack in every if of_keys is not None else ():
        words = Sources(model, special).nearest(stack.layers[0][0], True) if stack.crosses else None
        if isinstance(words, WordPlaces) and of_keys is not None:
            stack.places, stack.refusal = CrossPlaces(words, of_keys), ""
    return every


def maker_of(encoding: Any, options: dict[str, Any]) -> tuple[str, Maker]:
    """Returns the name of an encoding or attention, and the function that builds it for a stack."""
    if isinstance(encoding, nn.Module):
        return type(encoding).__name__, lambda _: encoding
    spec = registry.as_spec(encoding)
    name = str(spec["name"])
    kind = "attentions" if name in registry.names("attentions") else "positions"
    defaults = getattr(registry.load(kind, name), "foreign_options", {})
    return name, lambda shape: registry.build(kind, {**defaults, **spec, **options}, shape)


def objection(stack: AttentionStack, part: nn.Module) -> str:
    """Returns why an encoding or attention would have no effect in a stack; empty if it has one."""
    places, equipper = stack.places, stack.equipper
    assert places is not None
    assert equipper is not None
    names = equipper.projections(stack.layers[0][1])
    if isinstance(part, Attention):
        sorts = (places.holds | places.keys) - {"special"}
        if len(sorts) < 2 or (stack.crosses and not places.both_ways):
            return "its queries are of one modality and its keys of one, so that each already has its own projections"
        return "" if names else "its projections are not separate linear layers"
    if not isinstance(part, PairwisePosition):
        return "only encodings inside attention can be added to a foreign model"
    reason = part.objection(places.slot(stack.name))
    if not reason and not names and type(part).inputs is not PairwisePosition.inputs:
        return "the encoding shifts what queries and keys are made from, and these projections are no linear layers"
    return reason
