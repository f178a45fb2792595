"""Extracts on the processors of this machine: several processes decode and run the network, each on one thread."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset

from vlcli import stopping
from vlcli.ahead import from_workers, usable_cores
from vlcli.detection.extractor import Extractor, Preparation
from vlcli.detection.jobs import Extracted, Items, Job
from vlcli.errors import UsageError
from vlcli.progress import Progress


@dataclass
class _Work(Dataset[Extracted | Exception]):
    # runs in a process of the loader, where torch has one thread
    extractor: Extractor
    load: Callable[[list[Job]], list[Any]]
    decode: Callable[[list[Any], Preparation], Items]
    extract: Callable[[Extractor, Items], Extracted]

    def __getitem__(self, batch: list[Job]) -> Extracted | Exception:
        try:
            return self.extract(self.extractor, self.decode(self.load(batch), self.extractor.preparation))
        except Exception as fault:  # the loader would raise it with its traceback as message
            return fault


class Processes:
    """Extracts in ``workers`` processes; 0: one for each core.

    Raises UsageError: ``threads`` above 1, which processes that are forked cannot start.
    """

    def __init__(self, workers: int, threads: int, device: str, progress: Progress) -> None:
        if threads > 1:
            what, hint = "Each process of `engine: processes` has one thread.", "more `workers`, or engine=local"
            raise UsageError(what, got=f"threads: {threads}", hint=hint)
        self.workers = workers or len(usable_cores())

    def map(self, function: Callable[..., Any], parts: Sequence[Any], *shared: Any) -> list[Any]:
        return [function(part, *shared) for part in parts]

    def extract(
        self,
        batches: Iterator[list[Job]],
        extractor: Extractor,
        load: Callable[[list[Job]], list[Any]],
        decode: Callable[[list[Any], Preparation], Items],
        extract: Callable[[Extractor, Items], Extracted],
    ) -> Generator[Extracted, None, None]:
        options: dict[str, Any] = {"num_workers": self.workers, "worker_init_fn": stopping.shelter, "sampler": batches}
        loader = DataLoader(_Work(extractor, load, decode, extract), batch_size=None, **options)
        with closing(from_workers(loader)) as source:
            try:
                for part in source:
                    if isinstance(part, Exception):
                        raise part
                    yield part
            finally:  # torch ends them when it deletes the loader, which the traceback of a fault keeps
                for worker in source.workers:
                    worker.kill()
