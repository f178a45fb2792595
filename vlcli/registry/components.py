"""Looks components up by the base class of their kind: ``of(Model).build(spec, data_spec)`` is a ``Model``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from vlcli.registry import lookup
from vlcli.registry.contract import CONTRACTS, place

T = TypeVar("T")
_KINDS = {base: kind for kind, contract in CONTRACTS.items() for base in contract.bases}


@dataclass(frozen=True)
class Components(Generic[T]):
    """The components of one kind, typed by its base class."""

    kind: str

    def load(self, name: str) -> type[T]:
        """Returns the class registered as ``name``; errors as of :func:`vlcli.registry.load`."""
        return cast("type[T]", lookup.load(self.kind, name))

    def build(self, value: Any, *context: Any, **extra: Any) -> T:
        """Builds the component that a recipe chose; arguments and errors as of :func:`vlcli.registry.build`."""
        return cast("T", lookup.build(self.kind, value, *context, **extra))


def of(base: Callable[..., T]) -> Components[T]:
    """Returns the components of a kind by its base class, such as ``Model`` or ``Reader``.

    Raises:
        KeyError: the class is not the base of a kind.
    """
    return Components(_KINDS[place(base)])
