"""Which position encodings a slot of a model accepts, and the check that a model keeps the encodings it was given.

A model declares its slots in ``Model.slots`` and passes each to ``build_positions``, which refuses an encoding that
would have no effect in that slot. :func:`build_model` then checks that the model kept every encoding, so that none is
silently ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn.position import PairwisePosition, PositionKind, Slot, TokenPosition
from vlcli.registry import Spec, as_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vlcli.nn.model import DataSpec, Model

Encoding = TokenPosition | PairwisePosition
KINDS: dict[PositionKind, str] = {"tokens": "encodings of tokens", "pairs": "pairwise encodings"}


@dataclass
class _Built:
    encodings: list[tuple[str, Encoding]] = field(default_factory=list)
    slots: set[str] = field(default_factory=set)


_building: ContextVar[_Built | None] = ContextVar("_building", default=None)


def build_model(spec: Spec | str, data_spec: DataSpec) -> Model:
    """The model a recipe names, checked to hold every position encoding that it was given.

    Args:
        spec: a registered name, or a mapping with ``name`` and parameters.
        data_spec: sizes that come from the data.

    Raises:
        ComponentError: the name or a parameter is wrong, a slot has no use for its encoding, or the model does not keep
            an encoding or an attention that it was given.
    """
    with _recorded() as built:
        model: Model = registry.build("models", spec, data_spec)
    kept = set(model.modules())
    for slot, encoding in built.encodings:
        if encoding not in kept:
            raise _dropped(model, slot, encoding_name(encoding))
    for name, choice in given_positions(spec).items():
        if name not in built.slots:
            raise _dropped(model, name, str(choice))
    _require_attentions(model, spec)
    return model


def _require_attentions(model: Model, spec: Spec | str) -> None:
    chosen = as_spec(spec)
    present = {encoding_name(module) for module in model.modules()}
    for name, parameter in registry.parameters(type(model)).items():
        choice = chosen.get(name) if parameter.kind == "attentions" else None
        if choice is not None and as_spec(choice)["name"] not in present:
            raise ComponentError(
                f"No layer of the model {type(model).__name__} has the attention that {name!r} names.",
                where=name,
                got=as_spec(choice)["name"],
                hint=f"leave out {name!r}, or give the model layers that use it",
            )


@contextmanager
def _recorded() -> Iterator[_Built]:
    built = _Built()
    token = _building.set(built)
    try:
        yield built
    finally:
        _building.reset(token)


def record(slot: Slot, encodings: Iterable[Encoding]) -> None:
    """Note what was built for ``slot``, for :func:`build_model`."""
    built = _building.get()
    if built is not None:
        built.slots.add(slot.name)
        built.encodings += [(slot.name, encoding) for encoding in encodings]


def given_positions(spec: Spec | str) -> dict[str, Any]:
    """The position encodings that a model's recipe entry names, by slot; empty ones are left out."""
    chosen = as_spec(spec)
    slots = position_parameters(registry.load("models", chosen["name"]))
    return {name: chosen[name] for name in slots if chosen.get(name) not in (None, [], "none", ["none"])}


def position_parameters(model: Any) -> list[str]:
    """The names of the parameters of a model class whose annotation is a position encoding."""
    return [name for name, parameter in registry.parameters(model).items() if parameter.kind == "positions"]


def require(encoding: Encoding, slot: Slot, layers: int = 1) -> None:
    """Refuse an encoding that would have no effect in ``slot``, which serves a stack of ``layers``.

    Raises:
        ComponentError: the encoding has no effect; the message has the reason and the slots that accept it.
    """
    if layers < 1:
        slot = slot.without("pairs", "there are no layers here")
    reason = objection(encoding, slot)
    if reason:
        name = encoding_name(encoding)
        taken = takers(encoding)
        raise ComponentError(
            f"The position encoding {name!r} would have no effect here.",
            where=slot.name,
            got=reason,
            expected=" or ".join(KINDS[kind] for kind in sorted(slot.takes)) or "none",
            hint=f"slots that take {name!r} as it is set here: {', '.join(taken)}" if taken else "leave it out",
        )


def objection(encoding: Encoding, slot: Slot) -> str:
    """Why ``encoding`` would have no effect in ``slot``; empty where it has one."""
    if encoding.kind in slot.takes:
        return encoding.objection(slot)
    if slot.closed:
        return slot.closed
    what = "an encoding of tokens" if encoding.kind == "tokens" else "a pairwise encoding"
    others = " and ".join(KINDS[kind] for kind in sorted(slot.takes))
    return f"it is {what}, and the slot takes {others or 'none'}"


def takers(encoding: Encoding) -> list[str]:
    """The slots of all installed models, as ``MODEL.SLOT``, in which ``encoding`` has an effect."""
    every = all_slots()
    return [place for place, slot in every.items() if not objection(encoding, slot)]


def all_slots() -> dict[str, Slot]:
    """Every slot of every installed model that can be imported: the slot by ``MODEL.SLOT``."""
    found = {}
    for name in registry.names("models"):
        try:
            slots: Mapping[str, Slot] = getattr(registry.load("models", name), "slots", {})
        except ComponentError:  # a broken plugin, which `vlcli ls --check` reports
            continue
        found.update({f"{name}.{place}": slot for place, slot in slots.items()})
    return found


def encoding_name(encoding: nn.Module) -> str:
    """The name of an encoding in the recipe, or its class name if it was not built from one."""
    spec = getattr(encoding, "spec_in_recipe", None) or {}
    return str(spec.get("name", type(encoding).__name__))


def _dropped(model: Model, slot: str, encoding: str) -> ComponentError:
    return ComponentError(
        f"The model {type(model).__name__} does not use what its slot {slot!r} was given.",
        where=f"{type(model).__module__}:{type(model).__qualname__}",
        got=encoding,
        expected="every encoding that `build_positions` returns is kept in the model and called",
        hint="keep both halves of what `build_positions` returns, or narrow the slot's `takes` (docs/seams.md)",
    )
