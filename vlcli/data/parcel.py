"""Packs the small tensors of a batch into one string of bytes on its way from a worker process.

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

# Bytes of the largest tensor that goes along in the string.
SMALL = 1 << 18
_ALIGNED = 64


class Slot(NamedTuple):
    """Position, type and shape of a tensor in the string."""

    start: int
    dtype: torch.dtype
    shape: tuple[int, ...]


class Parcel:
    """One packed batch, of tensors on the CPU."""

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
        slot = Slot(self._size, tensor.dtype, tuple(tensor.shape))
        self._size += size + gap
        return slot

    def opened(self) -> Batch:
        """Unpack the batch into memory of its own."""
        content = bytearray(self._content)

        def take(slot: Slot) -> Tensor:
            flat = torch.frombuffer(content, dtype=slot.dtype, count=prod(slot.shape), offset=slot.start)
            return flat.view(slot.shape)

        batch: Batch = exchanged(self._batch, Slot, take)
        return batch

    def pin_memory(self) -> Batch:
        """Unpack the batch into page-locked memory; called by DataLoader."""
        return self.opened().pin_memory()
