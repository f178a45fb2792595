"""Run an extractor over images: decode in worker processes, batch, extract, store.

An interrupted run continues where it stopped; no bad file stops it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic

import torch
from torch.utils.data import DataLoader, Dataset

from vlcli.errors import DataError, VlcliError
from vlcli.features.boxes import BoxList, boxes_for
from vlcli.features.extractor import Extractor, Preparation, Prepared
from vlcli.features.images import BadImageError, open_image, read_size
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import DEFAULT_SET, Record
from vlcli.features.writer import FeatureWriter
from vlcli.progress import Progress, Silent, Task

WINDOW = 1024
"""Images looked through at a time for equal input sizes. Part of the result's definition: batches are cut from
the whole list, never from what is left of it, so that a resumed run extracts in the very same batches."""


@dataclass(frozen=True)
class Failure:
    """An image without a record, and why."""

    id: str
    path: str
    reason: str


@dataclass
class ExtractionReport:
    """What an extraction did.

    Attributes:
        path: the finished store.
        images: images asked for that the store now holds.
        regions: their boxes.
        written: images extracted by this run.
        resumed: images found done.
        seconds: wall time of this run.
        device_seconds: time inside the extractor.
        errors: images without a record.
    """

    path: Path
    images: int = 0
    regions: int = 0
    written: int = 0
    resumed: int = 0
    seconds: float = 0.0
    device_seconds: float = 0.0
    errors: list[Failure] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """The numbers a summary shows."""
        return {
            "images": self.images,
            "regions": self.regions,
            "written": self.written,
            "resumed": self.resumed,
            "errors": len(self.errors),
        }


@dataclass(frozen=True)
class _Job:
    """One image to prepare."""

    id: str
    path: Path
    boxes: BoxList | None

    @property
    def raw(self) -> tuple[int, int] | None:
        return self.boxes.size if self.boxes is not None else None


class _Batches(Dataset[list[Prepared | Failure]]):
    """Each item is a whole batch of prepared images: a worker decodes it, the main process extracts."""

    def __init__(self, batches: Sequence[Sequence[_Job]], preparation: Preparation) -> None:
        self.batches, self.preparation = batches, preparation

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> list[Prepared | Failure]:
        return [_prepare(job, self.preparation) for job in self.batches[index]]


def _prepare(job: _Job, preparation: Preparation) -> Prepared | Failure:
    try:
        prepared = preparation(open_image(job.path, raw=job.raw), job.boxes)
    except (BadImageError, ValueError) as error:
        return Failure(job.id, str(job.path), str(error))
    prepared.id = job.id
    return prepared


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
) -> ExtractionReport:
    """Extract images into a store; what is there already is not done again.

    Neither the number of workers nor an interruption changes a record. Records stand in the order of ``images``.
    Images that cannot be read are listed, with the reason, in ``errors.jsonl`` beside the store.

    Args:
        images: image ids and files.
        extractor: what to run.
        out: the finished store, e.g. ``features.h5``.
        boxes: given boxes by image id.
        progress: where to report.
        workers: processes that decode; 0 decodes in this one.
        batch_size: images at a time; None for the extractor's own.
        device: where to run.
        dtype: float type of the store, ``float16`` or ``float32``.
        set: box set to write.
        compression: ``gzip``, ``lzf`` or None.
        resume: continue an interrupted or finished store; False starts anew.
        strict: an image that cannot be read is an error.
        max_images: only the first so many.

    Raises:
        DataError: ids are not unique, the store there was made differently, no image could be read, or ``strict``.
        VlcliError: the disk is full, a worker died.
    """
    out, progress, started = Path(out), progress or Silent(), monotonic()
    chosen = list(images[:max_images])
    _check_ids(chosen)
    run = _Run(extractor.to(device), progress, strict)
    provenance = extractor.provenance()
    writer = FeatureWriter(out, provenance, set=set, dtype=dtype, compression=compression, resume=resume)
    report = ExtractionReport(out, resumed=sum(name in writer for name, _ in chosen))
    with progress.task("extracting", len(chosen), "image", done=report.resumed) as task, _flushed(writer):
        jobs = _jobs(chosen, boxes or {})
        batches = run.plan(jobs, writer, batch_size or extractor.batch_size)
        run.extract(batches, writer, workers, task)
    report.written, report.errors, report.device_seconds = run.written, run.errors, run.seconds
    _write_errors(out.with_name("errors.jsonl"), report.errors)
    _check_errors(report, len(chosen))
    with progress.task("writing the store", len(writer), "image") as task:
        writer.finish([name for name, _ in chosen], task.advance)
    return _totals(report, chosen, set, started)


class _Run:
    """The state of one extraction."""

    def __init__(self, extractor: Extractor, progress: Progress, strict: bool) -> None:
        self.extractor, self.progress, self.strict = extractor, progress, strict
        self.errors: list[Failure] = []
        self.written = 0
        self.seconds = 0.0

    def plan(self, jobs: list[_Job], done: FeatureWriter, size: int) -> list[list[_Job]]:
        """Cut the whole list into batches of one input size; drop those that are done."""
        batches: list[list[_Job]] = []
        for start in range(0, len(jobs), WINDOW):
            window = jobs[start : start + WINDOW]
            if any(job.id not in done for job in window):
                batches += [batch for batch in self._cut(window, size) if any(job.id not in done for job in batch)]
        return batches

    def _cut(self, window: list[_Job], size: int) -> Iterator[list[_Job]]:
        groups: dict[tuple[int, int], list[_Job]] = {}
        for job in window:
            try:
                shape = self.extractor.preparation.input_size(read_size(job.path, raw=job.raw))
            except BadImageError:
                shape = (0, 0)  # its reason is found when it is opened
            groups.setdefault(shape, []).append(job)
        for group in groups.values():
            yield from (group[i : i + size] for i in range(0, len(group), size))

    def extract(self, batches: list[list[_Job]], writer: FeatureWriter, workers: int, task: Task) -> None:
        """Work through the batches."""
        for items in self._load(batches, workers):
            good = [item for item in items if isinstance(item, Prepared)]
            self._fail([item for item in items if isinstance(item, Failure)], task)
            for same in _by_shape(good):
                self._store(same, writer, task)

    def _load(self, batches: list[list[_Job]], workers: int) -> Iterator[list[Prepared | Failure]]:
        loader = DataLoader(
            _Batches(batches, self.extractor.preparation),
            batch_size=None,
            num_workers=min(workers, len(batches)),
            pin_memory=self.extractor.device.type == "cuda",
        )
        try:
            yield from loader
        except RuntimeError as error:
            if "worker" not in str(error).lower():
                raise
            hint = "run again with fewer workers: what is done is kept"
            got = str(error).splitlines()[0]
            raise VlcliError("a process that decodes images died, perhaps of memory", got=got, hint=hint) from None

    def _store(self, items: list[Prepared], writer: FeatureWriter, task: Task) -> None:
        started = monotonic()
        records = self._forward(items)
        self.seconds += monotonic() - started
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
                task.advance()

    def _forward(self, items: list[Prepared]) -> list[Record]:
        with torch.inference_mode():
            return self.extractor.extract(items)

    def _fail(self, failures: list[Failure], task: Task) -> None:
        for failure in failures:
            self.errors.append(failure)
            task.advance()
            self.progress.debug(f"{failure.path or failure.id}: {failure.reason}")
        if failures and self.strict:
            raise _refusal(failures[0])


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
    """Keep what is finished when something else goes wrong."""
    try:
        yield
    except BaseException:
        with suppress(VlcliError):  # the first error is the one to show
            writer.flush()
        raise


def _check_ids(images: Sequence[tuple[str, Path]]) -> None:
    seen: dict[str, Path] = {}
    for name, path in images:
        if name in seen:
            expected = "names that differ without folders and extensions"
            raise DataError(f"two images are called {name!r}", got=f"{seen[name]} and {path}", expected=expected)
        seen[name] = path
    if not images:
        raise DataError("there are no images to extract", hint="check the folder or list given as images")


def _refusal(failure: Failure) -> DataError:
    hint = "without --strict such images are listed in errors.jsonl and left out"
    return DataError("an image cannot be used", where=failure.path or failure.id, got=failure.reason, hint=hint)


def _check_errors(report: ExtractionReport, asked: int) -> None:
    if len(report.errors) == asked:
        first = report.errors[0]
        raise DataError(
            "none of the images could be extracted",
            where=first.path or first.id,
            got=first.reason,
            expected=f"at least one usable image of {asked}",
            hint=f"all reasons are in {report.path.with_name('errors.jsonl')}",
        )


def _write_errors(path: Path, errors: list[Failure]) -> None:
    if not errors:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".tmp")
    with draft.open("w", encoding="utf-8") as file:
        for error in errors:
            file.write(json.dumps(asdict(error), ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _totals(
    report: ExtractionReport, images: Sequence[tuple[str, Path]], name: str, started: float
) -> ExtractionReport:
    store = FeatureStore(report.path, name)
    there = [image for image, _ in images if image in store]
    report.images = len(there)
    report.regions = sum(store.count(image) for image in there)
    report.seconds = monotonic() - started
    return report
