"""Adds a position encoding or an attention to a model of another library (``equip``)."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

from torch import nn

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.foreign import projections
from vlcli.foreign.choice import WHERE, Maker, Tokens, maker_of, objection, placed_stacks
from vlcli.foreign.equipment import Equipment, EquippedAttention
from vlcli.foreign.equipper import AttentionEquipper
from vlcli.foreign.stacks import AttentionStack
from vlcli.nn import Attention, PairwisePosition
from vlcli.registry import Spec

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
    """Adds a position encoding or another attention to a model of another library, in place.

    Args:
        model: of timm, transformers, torchvision or another library whose attention an equipper knows.
        encoding: a registered pairwise encoding or attention, or an encoding that is a module already.
        stack: names of stacks, as :func:`stacks` lists them, with ``*``; None: all in which the encoding has an effect.
        tokens: positions of the tokens, instead of those that the model gives (:class:`PictureInText`, a layout).
        keys: positions of the keys of cross-attention if the model cannot give them.
        special_ids: ids of words without a position; None: those that the model's configuration names.
        start: ``drawn``: the encoding's random initialisation; ``zero``: zeros, so that the model computes as before.
        options: of the encoding, as a recipe would set them.

    Returns:
        The same model.

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
    for equipper in {id(one.equipper): one.equipper for one, _ in chosen}.values():
        assert equipper is not None
        equipper.finish(model)
    return model


def _chosen(
    model: nn.Module, stacks: list[AttentionStack], stack_names: str | Sequence[str] | None, name: str, maker: Maker
) -> list[tuple[AttentionStack, nn.Module]]:
    patterns = [stack_names] if isinstance(stack_names, str) else stack_names
    chosen, reasons = [], []
    for stack in stacks:
        if patterns is not None and not any(stack.name == one or fnmatchcase(stack.name, one) for one in patterns):
            continue
        reason = stack.refusal
        if not reason:
            part = maker(stack.shape())
            reason = objection(stack, part)
            chosen += [] if reason else [(stack, part)]
        reasons += [f"{stack.name} ({type(stack.layers[0][1]).__name__}): {reason}"] if reason else []
    if not chosen:
        styles = [registry.of(AttentionEquipper).load(one).looks_for for one in registry.names("equippers")]
        raise ComponentError(
            f"{type(model).__name__} cannot be equipped with {name!r}.",
            where=WHERE,
            got="; ".join(reasons) or "; ".join(one.name for one in stacks) or "no attention at all",
            expected="; ".join(styles) + "; in layers whose tokens the encoding is for",
            hint="`vlcli.foreign.stacks(model)` lists the stacks; `stack`, `tokens` and `keys` choose and place them",
        )
    if len({id(part) for _, part in chosen}) < len(chosen):
        several = ", ".join(stack.name for stack, _ in chosen)
        raise ComponentError("One module cannot serve several stacks.", where=WHERE, got=several, hint="name a `stack`")
    return chosen


def _add(stack: AttentionStack, part: nn.Module) -> None:
    assert stack.places is not None
    assert stack.equipper is not None
    position = part if isinstance(part, PairwisePosition) else None
    equipment = Equipment(position, stack.places)
    for layer, (_, module) in enumerate(stack.layers):
        equipped = EquippedAttention(equipment, layer)
        module.__dict__[SLOT] = equipped  # not a submodule
        module.register_forward_pre_hook(projections.Arrival(stack.equipper, equipped), with_kwargs=True)
        names = stack.equipper.projections(module)
        if isinstance(part, Attention):
            projections.replace(module, names, equipped, part)
            continue
        stack.equipper.install(module, equipped)
        if equipment.shifts:
            projections.shift(module, names, equipped)


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
