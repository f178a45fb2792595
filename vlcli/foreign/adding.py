"""Adds a position encoding or an attention to a model of another library (``equip``)."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.foreign.equipment import AttentionEquipper, Equipment, EquippedAttention
from vlcli.foreign.joint import CrossPlaces
from vlcli.foreign.places import WHERE, GivenPlaces, TokenPlaces, WordPlaces, bound, cache_of
from vlcli.foreign.stacks import AttentionStack, Sources, find_stacks
from vlcli.nn import Attention, AttentionShape, Layout, PairwisePosition
from vlcli.registry import Spec

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
# The hooks are partial functions, so that a copy of the model has hooks of its own.


def keep_tokens(
    equipper: AttentionEquipper, equipped: EquippedAttention, module: nn.Module, args: Args, kwargs: Kwargs
) -> None:
    """Forward pre-hook of an equipped attention that keeps the tokens that enter it."""
    arguments = bound(module, args, kwargs)
    x, y = equipper.tokens(module, arguments)
    layer, cache = getattr(module, "layer_idx", None), cache_of(arguments)
    earlier = None
    if x is y and cache is not None and layer is not None:
        # Asked of this layer: earlier ones have counted this call. A sliding window holds fewer keys than that, and
        # a cache of fixed size has room for more.
        earlier = int(cache.get_seq_length(layer))
    if equipped.reads_tokens and earlier:
        what = "What this model was equipped with reads all tokens, and a cache holds the earlier ones as keys only."
        raise ComponentError(what, where=WHERE, hint="call the model with use_cache=False")
    equipped.begin(x, y, earlier)


def shift_input(equipped: EquippedAttention, role: int, _: nn.Module, args: Args) -> Args:
    """Forward pre-hook of one projection that replaces its input; role 0 is for queries, 1 for keys, 2 for values."""
    return (equipped.inputs()[role], *args[1:])


def shift_fused(equipped: EquippedAttention, module: nn.Linear, args: Args, output: Tensor) -> Tensor:
    """Forward hook of a fused projection that adds the projection of each input's change."""
    weights = module.weight.chunk(3)
    parts = [F.linear(one - args[0], weight) for one, weight in zip(equipped.inputs(), weights, strict=True)]
    return output + torch.cat(parts, -1)


def pass_layout(
    equipped: EquippedAttention, of_keys: bool, _: nn.Module, args: Args, kwargs: Kwargs
) -> tuple[Args, Kwargs]:
    """Forward pre-hook that passes a projection by modality the layout of its tokens."""
    return args, {**kwargs, "layout": equipped.during().layouts[of_keys]}


def replace(attention: nn.Module, names: tuple[str, ...], equipped: EquippedAttention, by: Attention) -> None:
    """Replace the projections of an attention by those of ``by``, which keep the weights; ComponentError if none."""
    for number, name in enumerate(names):
        projection = by.projection(getattr(attention, name))
        if projection is None:
            what = "Only attentions that differ in their projections can be added to a foreign model."
            expected = "one whose `projection` returns a module, as that of 'disentangled' does"
            raise ComponentError(what, where=WHERE, got=type(by).__name__, expected=expected)
        of_keys = len(names) == 3 and number > 0
        projection.register_forward_pre_hook(partial(pass_layout, equipped, of_keys), with_kwargs=True)
        setattr(attention, name, projection)


Tokens = TokenPlaces | Layout | None
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
    """Return every stack of attention in a model of another library; ``refusal`` says why one cannot be equipped.

    Stacks come in the order of their first layers; printed, each is one line. Arguments are as in :func:`equip`;
    without an encoding, ``refusal`` is about any.
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
    for stack in every:
        if stack.crosses and of_keys is not None:
            words = Sources(model, special).nearest(stack.layers[0][0], True)
            if isinstance(words, WordPlaces):
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
    places, names = stack.places, stack.equipper.projections(stack.layers[0][1])
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


M = TypeVar("M", bound=nn.Module)
SLOT = "position_slot"


def equip(
    model: M,
    encoding: Spec | str | PairwisePosition,
    *,
    stack: str | Sequence[str] | None = None,
    tokens: Tokens = None,
    keys: Tokens = None,
    special_ids: tuple[int, ...] | None = None,
    start: Literal["drawn", "zero"] = "drawn",
    **options: Any,
) -> M:
    """Add a position encoding or another attention to a model of another library, in place, and return the model.

    Args:
        encoding: a registered pairwise encoding or attention, or an encoding that is a module already.
        stack: names of stacks, as :func:`stacks` lists them, with ``*``; None: all in which the encoding has an effect.
        tokens: positions of the tokens, instead of those that the model gives (:class:`PictureInText`, a layout).
        keys: positions of the keys of cross-attention if the model cannot give them.
        special_ids: ids of words without a position; None: those that the model's configuration names.
        start: ``drawn``: the encoding's random initialisation; ``zero``: zeros, so that the model computes as before.
        options: of the encoding, as a recipe would set them.

    Raises:
        ComponentError: it cannot be added; the message names every stack and the reason.
    """
    if any(hasattr(module, SLOT) for module in model.modules()):
        raise ComponentError("The model is already equipped.", where=WHERE)
    name, maker = maker_of(encoding, options)
    chosen = _chosen(model, placed_stacks(model, tokens, keys, special_ids), stack, name, maker)
    for one, part in chosen:
        _add(one, part)
    _adopt(model, [(one, part) for one, part in chosen if isinstance(part, PairwisePosition)], start)
    for equipper in dict.fromkeys(one.equipper for one, _ in chosen):
        equipper.finish(model)
    return model


def _chosen(
    model: nn.Module, stacks: list[AttentionStack], stack_names: str | Sequence[str] | None, name: str, maker: Maker
) -> list[tuple[AttentionStack, nn.Module]]:
    patterns = [stack_names] if isinstance(stack_names, str) else ["*"] if stack_names is None else stack_names
    chosen, reasons = [], []
    for stack in stacks:
        if not any(stack.name == one or fnmatchcase(stack.name, one) for one in patterns):
            continue
        part = None if stack.refusal else maker(stack.shape())
        reason = stack.refusal if part is None else objection(stack, part)
        if part is not None and not reason:
            chosen.append((stack, part))
        else:
            reasons.append(f"{stack.name} ({type(stack.layers[0][1]).__name__}): {reason}")
    if not chosen:
        styles = [registry.of(AttentionEquipper).load(one).looks_for for one in registry.names("equippers")]
        what, where = f"{type(model).__name__} cannot be equipped with {name!r}.", WHERE
        got = "; ".join(reasons) or "; ".join(one.name for one in stacks) or "no attention at all"
        expected = "; ".join(styles) + "; in layers whose tokens the encoding is for"
        hint = "`vlcli.foreign.stacks(model)` lists the stacks; `stack`, `tokens` and `keys` choose and place them"
        raise ComponentError(what, where=where, got=got, expected=expected, hint=hint)
    if len({id(part) for _, part in chosen}) < len(chosen):
        several = ", ".join(stack.name for stack, _ in chosen)
        raise ComponentError("One module cannot serve several stacks.", where=WHERE, got=several, hint="name a `stack`")
    return chosen


def _add(stack: AttentionStack, part: nn.Module) -> None:
    equipment = Equipment(part if isinstance(part, PairwisePosition) else None, stack.places)
    for layer, (_, module) in enumerate(stack.layers):
        equipped = EquippedAttention(equipment, layer)
        module.__dict__[SLOT] = equipped  # not a submodule
        module.register_forward_pre_hook(partial(keep_tokens, stack.equipper, equipped), with_kwargs=True)
        names = stack.equipper.projections(module)
        if isinstance(part, Attention):
            replace(module, names, equipped, part)
            continue
        stack.equipper.install(module, equipped)
        if equipment.shifts and len(names) == 1:
            getattr(module, names[0]).register_forward_hook(partial(shift_fused, equipped))
        elif equipment.shifts:
            for role, name in enumerate(names):
                getattr(module, name).register_forward_pre_hook(partial(shift_input, equipped, role))


def _adopt(model: nn.Module, added: list[tuple[AttentionStack, PairwisePosition]], start: str) -> None:
    # Parameters are registered by layer if the encoding names parts of layers, as released, else as one module a stack.
    whole: dict[str, nn.Module] = {}
    for stack, position in added:
        if start == "zero":
            position.zero()
        weight = next(stack.layers[0][1].parameters())
        position.to(weight.device, weight.dtype)
        parts = [position.layer_parts(layer) for layer in range(len(stack.layers))]
        if not any(parts):
            whole[stack.name.replace(".*", "").replace(".", "-")] = position
        for (_, module), tables in zip(stack.layers, parts, strict=True):
            for name, part in tables.items():
                module.add_module(name, part)
    if whole:
        model.add_module("relative_position", next(iter(whole.values())) if len(whole) == 1 else nn.ModuleDict(whole))
