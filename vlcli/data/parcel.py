"""A batch on its way from a worker process: its small tensors as one string of bytes.

Torch moves every tensor through a piece of shared memory of its own, whose file descriptor the receiver asks for over a
socket: for a batch of sentences that takes longer than reading it. Large tensors still go that way; nothing of the
batch changes, tensors that are one object before are one after.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vlcli.nn.batch import Batch, exchanged

SMALL = 1 << 18
"""Bytes of the largest tensor that goes along in the string."""
_ALIGNED = 64


class Place(NamedTuple):
    """Where a tensor stands in the string."""

    start: int
    dtype: torch.dtype
    shape: tuple[int, ...]


class Parcel:
    """One batch, packed.

    Args:
        batch: on the CPU.
    """

    def __init__(self, batch: Batch) -> None:
        self._parts: list[Any] = []
        self._size = 0
        self._batch: Any = exchanged(batch, Tensor, self._put)
        self._content = b"".join(self._parts)
        del self._parts

    def _put(self, tensor: Tensor) -> Any:
        size = tensor.numel() * tensor.element_size()
        if size > SMALL or tensor.device.type != "cpu" or tensor.layout != torch.strided or not size:
            return tensor
        content = tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes()
        gap = -size % _ALIGNED
        self._parts += [content, bytes(gap)]
        found = Place(self._size, tensor.dtype, tuple(tensor.shape))
        self._size += size + gap
        return found

    def opened(self) -> Batch:
        """The batch: its tensors are of memory that is its own."""
        content = bytearray(self._content)

        def take(place: Place) -> Tensor:
            made = torch.frombuffer(content, dtype=place.dtype, count=prod(place.shape), offset=place.start)
            return made.view(place.shape)

        found: Batch = exchanged(self._batch, Place, take)
        return found

    def pin_memory(self) -> Batch:
        """The batch in page-locked memory (DataLoader calls this)."""
        return self.opened().pin_memory()
