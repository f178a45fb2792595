"""Run an extractor over images: decode in worker processes or a thread, batch, extract, store.

An interrupted run continues where it stopped; no bad file stops it. Several processes may share the work:
batches are dealt out by their place in the whole list, so that their number changes no record.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from vlcli import stopping
from vlcli.detection.extraction_report import (
    ExtractionReport,
    Failure,
    Share,
    add_up,
    check_errors,
    refusal,
    write_errors,
    write_totals,
)
from vlcli.detection.extractor import Extractor, Preparation, Prepared
from vlcli.errors import DataError, VlcliError
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import DEFAULT_SET, Record
from vlcli.features.writer import FeatureWriter
from vlcli.images.boxes import BoxList, boxes_for
from vlcli.images.files import BadImageError, open_image, read_size
from vlcli.images.labels import Labels
from vlcli.progress import Progress, ProgressTask, Silent

__all__ = ["WINDOW", "ExtractionReport", "Share", "extract_images"]

WINDOW = 1024
"""Images looked through at a time for equal input sizes. Part of the result's definition: batches are cut from
the whole list, never from what is left of it, so that a resumed run extracts in the very same batches."""


@dataclass(frozen=True)
class _Job:
    """One image to prepare."""

    id: str
    path: Path
    boxes: BoxList | None

    @property
    def raw(self) -> tuple[int, int] | None:
        return self.boxes.size if self.boxes is not None else None


class _Decoder(Dataset[list[Prepared | Failure]]):
    """An index is a whole batch of jobs: a worker decodes it (or reads its regions), the main process extracts."""

    def __init__(self, preparation: Preparation, source: FeatureStore | None = None) -> None:
        self.preparation, self.source = preparation, source

    def __getitem__(self, batch: list[_Job]) -> list[Prepared | Failure]:
        if self.source is not None:
            return [_read(job, self.source) for job in batch]
        return [_prepare(job, self.preparation) for job in batch]


def _prepare(job: _Job, preparation: Preparation) -> Prepared | Failure:
    try:
        prepared = preparation(open_image(job.path, raw=job.raw), job.boxes)
    except (BadImageError, ValueError) as error:
        return Failure(job.id, str(job.path), str(error))
    prepared.id = job.id
    return prepared


def _read(job: _Job, source: FeatureStore) -> Prepared | Failure:
    if job.id not in source:
        return Failure(job.id, str(job.path), f"no regions in {source.where}")
    record = source.read(job.id)
    return Prepared(torch.empty(0), record.size, (1.0, 1.0), None, job.id, record)


def _ahead(
    decoder: _Decoder, batches: Iterator[list[_Job]], pinned: bool
) -> Generator[list[Prepared | Failure], None, None]:
    """Decode in a thread, one batch ahead: neither decoders nor the kernels of a network hold Python's lock."""

    def following() -> list[Prepared | Failure] | None:
        batch = next(batches, None)
        items = None if batch is None else decoder[batch]
        return items and [item.pin_memory() if pinned and isinstance(item, Prepared) else item for item in items]

    with ThreadPoolExecutor(1, thread_name_prefix="decode") as pool:
        coming = pool.submit(following)
        while (items := coming.result()) is not None:
            coming = pool.submit(following)
            yield items


def extract_images(
    images: Sequence[tuple[str, Path]],
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
) -> ExtractionReport:
    """Extract images into a store; what is there already is not done again.

    Neither the number of workers or processes nor an interruption changes a record. Records stand in the order of
    ``images``. Images that cannot be read are listed, with the reason, in ``errors.jsonl`` beside the store.

    Args:
        images: image ids and files.
        extractor: what to run.
        out: the finished store, e.g. ``features.h5``.
        boxes: given boxes by image id.
        progress: where to report.
        workers: processes that decode; 0 decodes in a thread of this one.
        batch_size: images at a time; None for the extractor's own.
        device: where to run.
        dtype: float type of the store, ``float16`` or ``float32``.
        set: box set to write.
        compression: ``gzip``, ``lzf`` or None.
        resume: continue an interrupted or finished store; False starts anew.
        strict: an image that cannot be read is an error.
        max_images: only the first so many.
        share: this process's part, where several work together; all of them make this call.
        source: the regions that an extractor reads instead of pictures.
        labels: what the numbers of given boxes' classes and attributes stand for.

    Returns:
        What was done by all processes; complete on the first of them only.

    Raises:
        DataError: ids are not unique, the store there was made differently, no image could be read, or ``strict``.
        VlcliError: the disk is full, a worker died.
    """
    out, progress, share, started = Path(out), progress or Silent(), share or Share(), monotonic()
    chosen = list(images[:max_images])
    _check_ids(chosen)
    run = _Run(extractor.to(device), progress, share, strict, source)
    options = {"set": set, "dtype": dtype, "compression": compression, "resume": resume}
    made_from = {} if source is None else {"source": source.provenance}
    if labels is not None and boxes and getattr(extractor.preparation, "boxes", "").startswith("given"):
        made_from |= labels.provenance()
    writer = _open_writer(out, {**extractor.provenance(), **made_from}, share, options)
    report = ExtractionReport(out, resumed=sum(name in writer for name, _ in chosen))
    label = "extracting" if share.count == 1 else f"extracting, 1 of {share.count} processes"
    with progress.task(label, _part(len(chosen), share), "image", _part(report.resumed, share)) as task:
        run.left = _part(len(chosen), share) - _part(report.resumed, share)
        batches = run.plan(_jobs(chosen, boxes or {}), writer, batch_size or extractor.batch_size)
        with _flushed(writer):
            run.extract(batches, writer, min(workers, len(chosen) - report.resumed), task)
    add_up(report, share.gather((run.written, run.errors, run.seconds)), chosen)
    if share.rank == 0:
        _finish(report, writer, chosen, progress)
        write_totals(report, chosen, set, started)
    share.wait()
    return report


def _finish(
    report: ExtractionReport, writer: FeatureWriter, chosen: Sequence[tuple[str, Path]], progress: Progress
) -> None:
    """Write ``errors.jsonl`` and the finished store; the first process does this for all of them."""
    write_errors(report.path.with_name("errors.jsonl"), report.errors)
    check_errors(report, len(chosen))
    with progress.task("writing the store", len(chosen) - len(report.errors), "image") as task:
        writer.finish([name for name, _ in chosen], task.advance)


def _open_writer(out: Path, provenance: dict[str, Any], share: Share, options: dict[str, Any]) -> FeatureWriter:
    """The store; the first process clears it up before the others look what is there."""
    if share.rank:
        share.wait()
    writer = FeatureWriter(out, provenance, rank=share.rank, background=True, **options)
    if not share.rank:
        share.wait()
    return writer


def _part(count: int, share: Share) -> int:
    """About how many of ``count`` images fall to each process."""
    return -(-count // share.count)


class _Run:
    """The state of one process's extraction."""

    def __init__(
        self, extractor: Extractor, progress: Progress, share: Share, strict: bool, source: FeatureStore | None = None
    ) -> None:
        self.extractor, self.progress, self.share, self.strict = extractor, progress, share, strict
        self.source = source
        self.errors: list[Failure] = []
        self.written = self.left = 0
        self.seconds = 0.0

    def plan(self, jobs: list[_Job], done: FeatureWriter, size: int) -> Iterator[list[_Job]]:
        """Cut the whole list into batches of one input size; give those of this process that are not done.

        Planned as it goes: reading the headers of a million files first would hold up everything.
        """
        for number, start in enumerate(range(0, len(jobs), WINDOW)):
            window = jobs[start : start + WINDOW]
            if any(job.id not in done for job in window):
                for place, batch in enumerate(self._cut(window, size), number):
                    mine = place % self.share.count == self.share.rank
                    if mine and any(job.id not in done for job in batch):
                        yield batch

    def _cut(self, window: list[_Job], size: int) -> Iterator[list[_Job]]:
        groups: dict[tuple[int, int], list[_Job]] = {}
        for job in window:
            if self.source is not None:
                groups.setdefault((0, 0), []).append(job)
                continue
            try:
                shape = self.extractor.preparation.input_size(read_size(job.path, raw=job.raw))
            except BadImageError:
                shape = (0, 0)  # its reason is found when it is opened
            groups.setdefault(shape, []).append(job)
        for group in groups.values():
            yield from (group[i : i + size] for i in range(0, len(group), size))

    def extract(self, batches: Iterator[list[_Job]], writer: FeatureWriter, workers: int, task: ProgressTask) -> None:
        """Work through the batches."""
        with closing(self._load(batches, workers)) as loaded:
            for items in loaded:
                good = [item for item in items if isinstance(item, Prepared)]
                self._fail([item for item in items if isinstance(item, Failure)], task)
                for same in _by_shape(good):
                    self._store(same, writer, task)

    def _load(self, batches: Iterator[list[_Job]], workers: int) -> Generator[list[Prepared | Failure], None, None]:
        decoder = _Decoder(self.extractor.preparation, self.source)
        if not workers:
            yield from _ahead(decoder, batches, self.extractor.device.type == "cuda")
            return
        loader: DataLoader[list[Prepared | Failure]] = DataLoader(
            decoder,
            batch_size=None,
            sampler=batches,
            num_workers=workers,
            pin_memory=self.extractor.device.type == "cuda",
            worker_init_fn=stopping.shelter,
        )
        try:
            yield from loader
        except RuntimeError as error:
            if "worker" not in str(error).lower():
                raise
            hint = "run again with fewer workers: what is done is kept"
            got = str(error).splitlines()[0]
            raise VlcliError("a process that decodes images died, perhaps of memory", got=got, hint=hint) from None

    def _store(self, items: list[Prepared], writer: FeatureWriter, task: ProgressTask) -> None:
        started = monotonic()
        records = self._forward(items)
        self.seconds += monotonic() - started
        with stopping.held():  # a signal must not meet a record half taken
            for item, record in zip(items, records, strict=True):
                record.id = item.id
                if item.id in writer:  # a batch that an earlier run had begun to write
                    continue
                try:
                    writer.append(record)
                except DataError as error:
                    self._fail([Failure(item.id, "", f"{error.what}: {error.got}")], task)
                else:
                    self.written += 1
                    self._tick(task)

    def _forward(self, items: list[Prepared]) -> list[Record]:
        with torch.inference_mode():
            return self.extractor.extract(items)

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
            raise refusal(failures[0])


def _jobs(images: Sequence[tuple[str, Path]], boxes: Mapping[str, BoxList]) -> list[_Job]:
    return [_Job(name, Path(path), boxes_for(boxes, name)) for name, path in images]


def _by_shape(items: list[Prepared]) -> list[list[Prepared]]:
    """Batches are planned from headers; a file whose pixels differ from its header still gets its own batch."""
    groups: dict[tuple[int, ...], list[Prepared]] = {}
    for item in items:
        groups.setdefault(tuple(item.pixels.shape), []).append(item)
    return list(groups.values())


@contextmanager
def _flushed(writer: FeatureWriter) -> Iterator[None]:
    """Put everything on disk at the end, also when something else goes wrong."""
    try:
        yield
    except BaseException:
        with suppress(VlcliError):  # the first error is the one to show
            writer.flush()
        raise
    writer.flush()


def _check_ids(images: Sequence[tuple[str, Path]]) -> None:
    seen: dict[str, Path] = {}
    for name, path in images:
        if name in seen:
            expected = "names that differ without folders and extensions"
            raise DataError(f"two images are called {name!r}", got=f"{seen[name]} and {path}", expected=expected)
        seen[name] = path
    if not images:
        raise DataError("there are no images to extract", hint="check the folder or list given as images")
