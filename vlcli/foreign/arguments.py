"""Reads the arguments of a module's call by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any

from torch import nn

CACHES = ("cache", "past_key_values")
"""Argument names of transformers' cache, since 5.24 and before."""


@cache
def signature(forward: Any) -> inspect.Signature:
    """Returns the signature of a class's ``forward``."""
    return inspect.signature(forward)


def bound(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a module's call by name, those that ``**kwargs`` takes included."""
    forward = signature(type(module).forward)
    arguments = forward.bind_partial(module, *args, **kwargs).arguments
    for one in forward.parameters.values():
        if one.kind is one.VAR_KEYWORD:
            arguments |= arguments.pop(one.name, {})
    return arguments


def cache_of(arguments: Mapping[str, Any]) -> Any:
    """Returns transformers' cache among the arguments of a call, or None."""
    return next((arguments[name] for name in CACHES if arguments.get(name) is not None), None)


def takes_arguments(module: nn.Module, *names: str) -> bool:
    """Returns True if the ``forward`` of a module has parameters of all these names."""
    return set(names) <= set(signature(type(module).forward).parameters)


def unknown_parts(module: nn.Module, parts: set[str], arguments: set[str]) -> str:
    """Returns the parts with weights and the arguments of ``forward`` that are not among the known ones, as text."""
    children = {name for name, part in module.named_children() if any(True for _ in part.parameters())}
    children |= {name for name, _ in module.named_parameters(recurse=False)}
    others = set(signature(type(module).forward).parameters) - arguments - {"self"}
    return ", ".join(
        [f"`{one}`" for one in sorted(children - parts)] + [f"an argument `{one}`" for one in sorted(others)]
    )
