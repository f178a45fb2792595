"""Models without memory: on the meta device, where weights have shapes alone, and need not be drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

T = TypeVar("T")


def without_memory(make: Callable[[], T]) -> T:
    """What ``make`` builds, on the meta device; in earnest where its construction reads values."""
    try:
        with torch.device("meta"), _Undrawn():
            return make()
    except RuntimeError as error:  # NotImplementedError is one
        if "meta" not in str(error):
            raise
        return make()


class _Undrawn(TorchFunctionMode):
    """Passes over ``torch.nn.init`` for tensors of the meta device.

    torch draws for them in Python, as slowly as for a large tensor, and imports its compiler to do so.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            tensor = args[0] if args else kwargs.get("tensor")
            if isinstance(tensor, Tensor) and tensor.is_meta:
                return tensor
        return func(*args, **kwargs)
