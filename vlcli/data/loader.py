"""Batches in order, loaded by worker processes that outlive an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from vlcli.data.ahead import Ahead
from vlcli.data.sampler import Batches
from vlcli.errors import DataError, VlcliError
from vlcli.nn.batch import Batch
from vlcli.stopping import shelter

if TYPE_CHECKING:
    from vlcli.data.pipeline import Pipeline


class NothingReadableError(DataError):
    """A batch none of whose pictures can be read.

    Args:
        unreadable: why, by example.
    """

    def __init__(self, unreadable: dict[str, str]) -> None:
        first = next(iter(unreadable.values()), "")
        super().__init__("No picture of a batch can be read.", got=first, hint="check `root` and `images`")
        self.unreadable = unreadable


class Loader:
    """Batches in order; worker processes live as long as it does.

    Args:
        data: where batches come from.
        batches: which ones.
        workers: processes that load; 0 loads in this one, a batch ahead in a thread.
        context: how workers start.
    """

    def __init__(self, data: Pipeline, batches: Batches, workers: int, context: str | None) -> None:
        self.batches, self.busy = batches, False
        self._unreadable = data.unreadable
        self._source: Any = DataLoader(
            # A copy that knows no loader: in a cycle, workers would be told to stop too late and be waited for in vain.
            copy(data),
            batch_sampler=batches,  # type: ignore[arg-type]
            num_workers=workers,
            collate_fn=_only,
            pin_memory=torch.cuda.is_available(),
            multiprocessing_context=context if workers else None,
            persistent_workers=workers > 0,
            prefetch_factor=4 if workers else None,
            worker_init_fn=shelter,
        )

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        self.busy = True
        source = Ahead(iter(self._source)) if self._source.num_workers == 0 else iter(self._source)
        try:
            while (batch := next(source, None)) is not None:
                if isinstance(batch, NothingReadableError) and self.batches.world == 1:
                    self._unreadable.update(batch.unreadable)
                    continue  # processes that train together must take each step together
                if isinstance(batch, VlcliError):
                    self._source = None
                    raise batch
                self._unreadable.update(batch.unreadable)
                yield batch
        finally:
            if isinstance(source, Ahead):
                source.close()
            del source  # a traceback would keep it, and with it the workers, alive
            self.busy = self._source is None


def _only(found: list[Any]) -> Any:
    return found[0]
