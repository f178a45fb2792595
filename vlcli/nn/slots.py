"""Checks that position encodings have an effect in their slots, and that a model keeps every encoding.

A model declares its slots in ``Model.slots`` and passes each to ``build_positions``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from torch import nn

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn.position import Position, PositionKind, Slot
from vlcli.registry import Spec, as_spec

if TYPE_CHECKING:
    from vlcli.nn.model import DataSpec, Model

KINDS: dict[PositionKind, str] = {"tokens": "encodings of tokens", "pairs": "pairwise encodings"}


# Encodings that `build_positions` returned while a model is built, by slot.
_building: ContextVar[dict[str, list[Position]] | None] = ContextVar("_building", default=None)


def build_model(spec: Spec | str, data_spec: DataSpec) -> Model:
    """Build the model that a recipe names, and check that it keeps every position encoding and attention.

    Raises ComponentError if the name or a parameter is wrong, an encoding would have no effect in its slot, or the
    model does not keep an encoding or an attention.
    """
    built: dict[str, list[Position]] = {}
    token = _building.set(built)
    try:
        model: Model = registry.build("models", spec, data_spec)
    finally:
        _building.reset(token)
    kept = set(model.modules())
    dropped = [(slot, encoding_name(e)) for slot, encodings in built.items() for e in encodings if e not in kept]
    chosen, present = as_spec(spec), {encoding_name(module) for module in model.modules()}
    for slot in position_parameters(registry.load("models", chosen["name"])):  # chosen, and not even built
        if slot not in built and chosen.get(slot) not in (None, [], "none", ["none"]):
            dropped.append((slot, str(chosen[slot])))
    for slot, name in dropped:
        what = f"The model {type(model).__name__} does not use what its slot {slot!r} was given."
        where = f"{type(model).__module__}:{type(model).__qualname__}"
        expected = "every encoding that `build_positions` returns is kept in the model and called"
        hint = "keep both halves of what `build_positions` returns, or narrow the slot's `takes` (docs/seams.md)"
        raise ComponentError(what, where=where, got=name, expected=expected, hint=hint)
    for name, parameter in registry.parameters(type(model)).items():
        choice = chosen.get(name) if parameter.kind == "attentions" else None
        if choice is not None and (got := as_spec(choice)["name"]) not in present:
            what = f"No layer of the model {type(model).__name__} has the attention that {name!r} names."
            hint = f"leave out {name!r}, or give the model layers that use it"
            raise ComponentError(what, where=name, got=got, hint=hint)
    return model


def record(slot: Slot, encodings: Iterable[Position]) -> None:
    """Record the encodings of ``slot`` for :func:`build_model`."""
    if (built := _building.get()) is not None:
        built.setdefault(slot.name, []).extend(encodings)


def position_parameters(model: Any) -> list[str]:
    """Return the names of a model class's parameters that take position encodings."""
    return [name for name, parameter in registry.parameters(model).items() if parameter.kind == "positions"]


def require(encoding: Position, slot: Slot, layers: int = 1) -> None:
    """Raise ComponentError for an encoding without effect in a stack's ``slot``; it names the slots that take it."""
    if layers < 1:
        slot = slot.without("pairs", "there are no layers here")
    if reason := objection(encoding, slot):
        name, slots = encoding_name(encoding), all_slots().items()
        taken = [at for at, other in slots if not objection(encoding, other)]
        what = f"The position encoding {name!r} would have no effect here."
        expected = " or ".join(KINDS[kind] for kind in sorted(slot.takes)) or "none"
        hint = f"slots that take {name!r} as it is set here: {', '.join(taken)}" if taken else "leave it out"
        raise ComponentError(what, where=slot.name, got=reason, expected=expected, hint=hint)


def objection(encoding: Position, slot: Slot) -> str:
    """Return why ``encoding`` would have no effect in ``slot``; empty if it has one."""
    if encoding.kind in slot.takes:
        return encoding.objection(slot)
    if slot.closed:
        return slot.closed
    what = "an encoding of tokens" if encoding.kind == "tokens" else "a pairwise encoding"
    return f"it is {what}, and the slot takes {' and '.join(KINDS[kind] for kind in sorted(slot.takes)) or 'none'}"


def all_slots() -> dict[str, Slot]:
    """Return the slots of all installed models that can be imported, by ``MODEL.SLOT``."""
    every = {}
    for name in registry.names("models"):
        try:
            slots: Mapping[str, Slot] = getattr(registry.load("models", name), "slots", {})
        except ComponentError:  # a broken plugin, which `vlcli ls --check` reports
            continue
        every.update({f"{name}.{parameter}": slot for parameter, slot in slots.items()})
    return every


def encoding_name(encoding: nn.Module) -> str:
    """Return the name of an encoding in the recipe, or the name of its class."""
    return str((getattr(encoding, "spec_in_recipe", None) or {}).get("name", type(encoding).__name__))
