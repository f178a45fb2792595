"""What is put into a foreign model, and which of its stacks have a use for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from vlcli import registry
from vlcli.foreign.given import GivenPlaces
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
    """Every stack of attention in a model of another library, and whether it can be equipped.

    Args:
        model: of timm, transformers, torchvision or another library.
        encoding: what it would be equipped with; None: anything.
        tokens: where the tokens stand, instead of what the model tells.
        keys: where the tokens stand that cross-attention looks at, where the model cannot tell.
        special_ids: ids of words that have no place; None: those that the model's configuration names.
        options: of the encoding.

    Returns:
        Stacks in the order of their first layers. One that cannot be equipped has a ``refusal``; printed, each is one
        line.
    """
    found = placed_stacks(model, tokens, keys, special_ids)
    if encoding is not None:
        _, maker = maker_of(encoding, options)
        for stack in found:
            stack.refusal = stack.refusal or objection(stack, maker(stack.shape()))
    return found


def placed_stacks(
    model: nn.Module, tokens: Tokens, keys: Tokens, special: tuple[int, ...] | None
) -> list[AttentionStack]:
    """All stacks, with the places that the model tells or that the caller gives."""
    found = find_stacks(model, given_places(tokens), special)
    there = given_places(keys)
    for stack in found if there is not None else ():
        own = Sources(model, special).nearest(stack.layers[0][0], True) if stack.crosses else None
        if isinstance(own, WordPlaces) and there is not None:
            stack.places, stack.refusal = CrossPlaces(own, there), ""
    return found


def given_places(tokens: Tokens) -> TokenPlaces | None:
    """Places from what a caller gives."""
    return GivenPlaces(tokens) if isinstance(tokens, Layout) else tokens


def maker_of(encoding: Any, options: dict[str, Any]) -> tuple[str, Maker]:
    """The name of what is added, and what makes it for a stack."""
    if isinstance(encoding, nn.Module):
        return type(encoding).__name__, lambda _: encoding
    spec = registry.as_spec(encoding)
    name = str(spec["name"])
    kind = "attentions" if name in registry.names("attentions") else "positions"
    defaults = getattr(registry.load(kind, name), "foreign_options", {})
    return name, lambda shape: registry.build(kind, {**defaults, **spec, **options}, shape)


def objection(stack: AttentionStack, part: nn.Module) -> str:
    """Why a part would have no effect in a stack; empty where it has one."""
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
