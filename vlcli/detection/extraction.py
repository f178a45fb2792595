"""Runs an extractor over images: decodes in worker processes or a thread, batches, extracts, stores.

An interrupted run continues where it stopped; no bad file stops it. Several processes may share the work:
batches are dealt out by their place in the whole list, so that their number changes no record.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch.utils.data import DataLoader

from vlcli import stopping
from vlcli.ahead import Ahead, from_workers
from vlcli.detection import jobs
from vlcli.detection.extractor import Extractor, Prepared
from vlcli.detection.jobs import Cluster, ExtractionReport, Failure, Job, Share
from vlcli.errors import DataError, VlcliError
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import DEFAULT_SET, Record
from vlcli.features.writer import FeatureWriter, free_bytes
from vlcli.images.boxes import BoxList
from vlcli.images.labels import Labels
from vlcli.progress import Progress, ProgressTask, Silent

__all__ = ["WINDOW", "ExtractionReport", "Share", "extract_images"]

# Images looked through at a time for equal input sizes. Part of the result's definition: batches are cut from the whole
# list, never from what is left of it, so that a resumed run extracts in the very same batches.
WINDOW = 1024
TOLD = 1e8  # Bytes of a store that are told once the first pictures are done
LOOKED = 64  # Remote headers that one task of a cluster reads


def extract_images(
    images: Sequence[tuple[str, Path | str]],
    extractor: Extractor,
    out: str | Path,
    *,
    boxes: Mapping[str, BoxList] | None = None,
    progress: Progress | None = None,
    workers: int = 0,
    batch_size: int | None = None,
    device: str | torch.device = "cpu",
    dtype: str = "float16",
    set: str = DEFAULT_SET,
    compression: str | None = None,
    resume: bool = True,
    strict: bool = False,
    max_images: int | None = None,
    share: Share | None = None,
    source: FeatureStore | None = None,
    labels: Labels | None = None,
    cluster: Cluster | None = None,
) -> ExtractionReport:
    """Extract images into a store; images that the store already holds are not extracted again.

    Neither the number of workers or processes nor an interruption changes a record. Records stand in the order of
    ``images``. Images that cannot be read are listed, with the reason, in ``errors.jsonl`` beside the store.

    Args:
        images: image ids with files, or remote addresses (``s3://...``, whatever fsspec knows).
        out: the finished store, e.g. ``features.h5``.
        workers: processes that decode; 0 decodes in a thread of this one.
        batch_size: None for the extractor's.
        dtype: ``float16`` or ``float32``.
        compression: ``gzip``, ``lzf`` or None.
        resume: continue an interrupted or finished store; False starts anew.
        strict: an image that cannot be read is an error.
        share: this process's part, where several work together; all of them make this call.
        cluster: decodes and extracts instead of this machine; it decides on workers and device.

    Returns:
        The totals of all processes; complete in the first of them only.
    """
    out, progress, share, started = Path(out), progress or Silent(), share or Share(), monotonic()
    chosen = list(images[:max_images])
    jobs.check_ids(chosen)
    run = _Run(extractor.to(device), progress, share, strict, source, cluster)
    provenance = extractor.provenance() | ({} if source is None else {"source": source.provenance})
    if labels is not None and boxes and getattr(extractor.preparation, "boxes", "").startswith("given"):
        provenance |= labels.provenance()
    if share.rank:  # the first process clears the store up before the others look what is there
        share.wait()
    options: dict[str, Any] = {"set": set, "dtype": dtype, "compression": compression, "resume": resume}
    writer = FeatureWriter(out, provenance, rank=share.rank, background=True, **options)
    if not share.rank:
        share.wait()
    report = ExtractionReport(out, resumed=sum(name in writer for name, _ in chosen))
    total, done = (-(-count // share.count) for count in (len(chosen), report.resumed))  # about: of each process
    label = "extracting" if share.count == 1 else f"extracting, 1 of {share.count} processes"
    with progress.task(label, total, "image", done) as task:
        run.left = total - done
        batches = run.plan(jobs.jobs_of(chosen, boxes or {}), writer, batch_size or extractor.batch_size)
        run.extract(batches, writer, min(workers, len(chosen) - report.resumed), task)
    written, errors, seconds = zip(*share.gather((run.written, run.errors, run.seconds)), strict=True)
    order = {name: number for number, (name, _) in enumerate(chosen)}
    report.written, report.device_seconds = sum(written), sum(seconds)
    report.errors = sorted(chain(*errors), key=lambda error: order[error.id])
    if share.rank == 0:
        report.write_errors(len(chosen))
        with progress.task("writing the store", len(chosen) - len(report.errors), "image") as task:
            writer.finish([name for name, _ in chosen], task.advance)
        store = FeatureStore(out, set)
        regions = [store.count(name) for name, _ in chosen if name in store]
        report.images, report.regions, report.seconds = len(regions), sum(regions), monotonic() - started
    share.wait()
    return report


@dataclass
class _Run:
    extractor: Extractor
    progress: Progress
    share: Share
    strict: bool
    source: FeatureStore | None = None
    cluster: Cluster | None = None
    errors: list[Failure] = field(default_factory=list)
    written: int = 0
    left: int = 0
    seconds: float = 0.0

    def plan(self, every: list[Job], done: FeatureWriter, size: int) -> Iterator[list[Job]]:
        """Yield this process's batches of one input size, cut on demand: a million headers take long to read."""
        for number, start in enumerate(range(0, len(every), WINDOW)):
            window = every[start : start + WINDOW]
            if any(job.id not in done for job in window):
                for place, batch in enumerate(self._cut(window, size), number):
                    if place % self.share.count == self.share.rank and any(job.id not in done for job in batch):
                        yield batch

    def _cut(self, window: list[Job], size: int) -> Iterator[list[Job]]:
        groups: dict[tuple[int, int], list[Job]] = {}
        shapes = [(0, 0)] * len(window) if self.source is not None else self._sizes(window)
        for job, shape in zip(window, shapes, strict=True):
            groups.setdefault(shape, []).append(job)
        for group in groups.values():
            yield from (group[i : i + size] for i in range(0, len(group), size))

    def _sizes(self, window: list[Job]) -> list[tuple[int, int]]:
        preparation, far = self.extractor.preparation, [job for job in window if job.far]
        if self.cluster is None or not far:
            return jobs.input_sizes(window, preparation)
        parts = [far[start : start + LOOKED] for start in range(0, len(far), LOOKED)]
        near = iter(jobs.input_sizes([job for job in window if not job.far], preparation))
        remote = chain.from_iterable(self.cluster.map(jobs.input_sizes, parts, preparation))
        return [next(remote) if job.far else next(near) for job in window]

    def extract(self, batches: Iterator[list[Job]], writer: FeatureWriter, workers: int, task: ProgressTask) -> None:
        source: Any
        if self.cluster is None:
            source = self._decoded(batches, workers)
            parts = (jobs.make_records(self.extractor, items) for items in source)
        else:
            loaded = partial(jobs.load, source=self.source)
            source = parts = self.cluster.extract(batches, self.extractor, loaded, jobs.prepare_all, jobs.make_records)
        try:
            with closing(source):
                for part in parts:
                    self.seconds += part.seconds
                    first = not self.written
                    self._fail(part.failures, task)
                    self._keep(part.records, writer, task)
                    if first and self.written and not self.share.rank:
                        self._tell_size(writer)
        except BaseException:
            with suppress(VlcliError):  # the first error is the one to show
                writer.flush()
            raise
        writer.flush()

    def _decoded(self, batches: Iterator[list[Job]], workers: int) -> Ahead:
        decoder, pins = jobs.Decoder(self.extractor.preparation, self.source), self.extractor.device.type == "cuda"
        if workers:
            options: dict[str, Any] = {"num_workers": workers, "pin_memory": pins, "worker_init_fn": stopping.shelter}
            return from_workers(DataLoader(decoder, batch_size=None, sampler=batches, **options))
        # neither decoders nor the kernels of a network hold Python's lock
        decoded = map(decoder.__getitem__, batches)
        pinned = ([item.pin_memory() if isinstance(item, Prepared) else item for item in items] for items in decoded)
        return Ahead(pinned if pins else decoded)

    def _keep(self, records: list[Record], writer: FeatureWriter, task: ProgressTask) -> None:
        with stopping.held():  # a signal must not meet a record half taken
            for record in records:
                if record.id in writer:  # a batch that an earlier run had begun to write
                    continue
                try:
                    writer.append(record)
                except DataError as error:
                    self._fail([Failure(record.id, "", f"{error.what}: {error.got}")], task)
                else:
                    self.written += 1
                    self._tick(task)

    def _tell_size(self, writer: FeatureWriter) -> None:
        each, left = writer.bytes / self.written, self.left * self.share.count
        store, free = each * (left + len(writer)), free_bytes(writer.path.parent)
        told = f"the store will take about {store / 1e9:.1f} GB, twice as much while its parts are joined"
        if free < each * left + store:
            hint = "it stops when the disk is full, and goes on from there once there is room"
            self.progress.warn(f"{told}; {free / 1e9:.1f} GB are free: {hint}")
        elif store > TOLD:
            self.progress.info(f"{told}; {free / 1e9:.1f} GB are free")

    def _tick(self, task: ProgressTask) -> None:
        # How many fall to this process is known only about: the bar ends where it was said to end.
        self.left -= 1
        if self.left >= 0:
            task.advance()

    def _fail(self, failures: list[Failure], task: ProgressTask) -> None:
        for failure in failures:
            self.errors.append(failure)
            self._tick(task)
            self.progress.debug(f"{failure.path or failure.id}: {failure.reason}")
        if failures and self.strict:
            first = failures[0]
            hint = "without --strict (strict: true) such images are listed in errors.jsonl and left out"
            raise DataError("an image cannot be used", where=first.path or first.id, got=first.reason, hint=hint)
