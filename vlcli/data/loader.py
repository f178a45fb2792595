"""Loads batches in order, in worker processes that outlive an epoch.

Torch moves every tensor through a piece of shared memory of its own, whose file descriptor the receiver asks for over a
socket: for a batch of sentences that takes longer than reading it. Large tensors still go that way; the batch is
unchanged, tensors that are one object before are one after.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import multiprocessing.util
import weakref
from collections.abc import Iterator
from math import prod
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from vlcli.ahead import Ahead, from_workers
from vlcli.data.sampler import Batches, Pick
from vlcli.errors import DataError, VlcliError
from vlcli.nn.batch import Batch, exchanged
from vlcli.stopping import shelter

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
        content = bytearray()

        def put(tensor: Tensor) -> Any:
            if tensor.layout != torch.strided or tensor.device.type != "cpu" or not 0 < tensor.nbytes <= SMALL:
                return tensor
            slot = Slot(len(content), tensor.dtype, tuple(tensor.shape))
            content.extend(tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
            content.extend(bytes(-len(content) % _ALIGNED))
            return slot

        self._batch: Any = exchanged(batch, Tensor, put)
        self._content = bytes(content)

    def opened(self) -> Batch:
        content = bytearray(self._content)

        def take(slot: Slot) -> Tensor:
            flat = torch.frombuffer(content, dtype=slot.dtype, count=prod(slot.shape), offset=slot.start)
            return flat.view(slot.shape)

        return cast(Batch, exchanged(self._batch, Slot, take))

    def pin_memory(self) -> Batch:
        """Unpack the batch into page-locked memory; called by DataLoader."""
        return self.opened().pin_memory()


class NothingReadableError(DataError):
    """No picture of a batch can be read; ``unreadable`` says why, by example."""

    def __init__(self, unreadable: dict[str, str]) -> None:
        first = next(iter(unreadable.values()), "")
        super().__init__("No picture of a batch can be read.", got=first, hint="check `root` and `images`")
        self.unreadable = unreadable


class _Epoch:
    batches: Batches  # once an epoch is read

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[Pick]]:
        return iter(self.batches)


class BatchLoader:
    """Loads batches in order; its worker processes live as long as the loader.

    Args:
        data: source of the batches; it must hold no reference to this loader.
        unreadable: filled with the reason why an example could not be read, by example.
        workers: processes that load; 0 loads in this one, a batch ahead in a thread.
        context: how workers start.
        threaded: False: without workers, each batch is made on demand, in the calling thread.
    """

    def __init__(
        self, data: Dataset[Any], unreadable: dict[str, str], workers: int, context: str | None, threaded: bool = True
    ) -> None:
        self._epoch, self._unreadable, self.busy, self._threaded = _Epoch(), unreadable, False, threaded
        self._workers: list[BaseProcess] = []
        self._end = weakref.finalize(self, _kill, self._workers)
        _loaders.add(self)
        self._source: Any = DataLoader(
            data,
            batch_sampler=self._epoch,
            num_workers=workers,
            collate_fn=_only,
            pin_memory=torch.cuda.is_available(),
            multiprocessing_context=context if workers else None,
            persistent_workers=workers > 0,
            prefetch_factor=4 if workers else None,
            worker_init_fn=_begin,
        )

    def over(self, batches: Batches) -> BatchLoader:
        """Set the batches that the next iteration reads; return this loader."""
        self._epoch.batches = batches
        return self

    @property
    def batches(self) -> Batches:
        return self._epoch.batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        self.busy = True
        if self._source.num_workers == 0:
            source = Ahead(iter(self._source), multiprocessing.active_children(), self._threaded)
        else:
            source = from_workers(self._source, self._workers)
            self._workers[:] = source.workers
        try:
            while (batch := next(source, None)) is not None:
                batch = batch.opened() if isinstance(batch, Parcel) else batch
                if isinstance(batch, NothingReadableError) and self.batches.world == 1:
                    self._unreadable.update(batch.unreadable)
                    continue  # processes that train together must take each step together
                if isinstance(batch, VlcliError):
                    self._source = None
                    raise batch
                self._unreadable.update(batch.unreadable)
                yield batch
        finally:
            source.close()
            self.busy = self._source is None or source.works
            del source  # a traceback would keep it, and with it the workers, alive


_loaders: weakref.WeakSet[BatchLoader] = weakref.WeakSet()


def _kill(workers: list[BaseProcess]) -> None:
    # They ignore SIGTERM, with which torch and multiprocessing end them before they wait for them.
    for worker in workers:
        if worker.daemon:
            worker.kill()


@atexit.register  # runs before that of multiprocessing.util, which is imported above
def _end_workers() -> None:
    for loader in list(_loaders):
        loader._end()


def _begin(worker: int) -> None:
    shelter(worker)
    gc.freeze()  # else each collection looks at all that was imported: a third of the time of small examples


def _only(batches: list[Any]) -> Any:
    (batch,) = batches
    return Parcel(batch) if isinstance(batch, Batch) and get_worker_info() is not None else batch
