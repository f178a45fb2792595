"""Builds models on the meta device, without drawing weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

T = TypeVar("T")


def without_memory(make: Callable[[], T]) -> T:
    """Call ``make`` on the meta device; with memory if its construction reads values."""
    try:
        with torch.device("meta"), _Undrawn():
            return make()
    except RuntimeError as error:  # NotImplementedError is one
        if "meta" not in str(error):
            raise
        return make()


class _Undrawn(TorchFunctionMode):
    # torch would draw for tensors of the meta device in Python, as slowly as for large ones, and import its compiler.

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            tensor = args[0] if args else kwargs.get("tensor")
            if isinstance(tensor, Tensor) and tensor.is_meta:
                return tensor
        return func(*args, **kwargs)
