"""The work of an extraction in pieces: which images, decoded and resized, then records; here or in other processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import torch
from torch.utils.data import Dataset

from vlcli.detection.extraction_report import Failure
from vlcli.detection.extractor import Extractor, Preparation, Prepared
from vlcli.errors import DataError
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import Record
from vlcli.images.boxes import BoxList, boxes_for
from vlcli.images.files import BadImageError, open_image, read_size
from vlcli.images.remote import is_remote

FETCHING = 16
"""Remote pictures that a process reads at a time."""


@dataclass(frozen=True)
class Job:
    """One image to prepare.

    Attributes:
        id: of the image.
        path: its file, or a remote address.
        boxes: given ones.
        content: of the file, where it has been read already.
    """

    id: str
    path: Path | str
    boxes: BoxList | None
    content: bytes | None = None

    @property
    def raw(self) -> tuple[int, int] | None:
        """The size in which boxes were measured."""
        return self.boxes.size if self.boxes is not None else None

    @property
    def far(self) -> bool:
        """Whether it is still to be fetched."""
        return isinstance(self.path, str) and self.content is None


@dataclass
class Made:
    """What became of a batch.

    Attributes:
        records: of the images that could be used.
        failures: the others.
        seconds: inside the extractor.
    """

    records: list[Record] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0


Items = list[Prepared | Failure]


class Decoder(Dataset[Items]):
    """An index is a whole batch of jobs: a worker decodes it (or reads its regions), the main process extracts."""

    def __init__(self, preparation: Preparation, source: FeatureStore | None = None) -> None:
        self.preparation, self.source = preparation, source

    def __getitem__(self, batch: list[Job]) -> Items:
        if self.source is not None:
            return [read_regions(job, self.source) for job in batch]
        return prepare_all(batch, self.preparation)


def jobs_of(images: Sequence[tuple[str, Path | str]], boxes: Mapping[str, BoxList]) -> list[Job]:
    """A job for each image; a text that is an address stays one."""
    return [
        Job(name, path if isinstance(path, str) and is_remote(path) else Path(path), boxes_for(boxes, name))
        for name, path in images
    ]


def prepare_all(batch: Sequence[Job], preparation: Preparation) -> Items:
    """Decode and resize; what is remote is fetched side by side."""
    if not any(job.far for job in batch):
        return [prepare(job, preparation) for job in batch]
    with ThreadPoolExecutor(FETCHING) as pool:
        return list(pool.map(lambda job: prepare(job, preparation), batch))


def prepare(job: Job, preparation: Preparation) -> Prepared | Failure:
    """Decode and resize one image, or say why it cannot be used."""
    source = job.path if job.content is None else job.content
    try:
        prepared = preparation(open_image(source, raw=job.raw), job.boxes)
    except (BadImageError, ValueError) as error:
        return Failure(job.id, str(job.path), str(error))
    prepared.id = job.id
    return prepared


def read_regions(job: Job, source: FeatureStore) -> Prepared | Failure:
    """The stored regions of an image."""
    if job.id not in source:
        return Failure(job.id, str(job.path), f"no regions in {source.where}")
    record = source.read(job.id)
    return Prepared(torch.empty(0), record.size, (1.0, 1.0), None, job.id, record)


def input_sizes(jobs: Sequence[Job], preparation: Preparation) -> list[tuple[int, int]]:
    """Height and width of each image after resizing, from its header; of unusable ones 0."""
    if not any(job.far for job in jobs):
        return [_input_size(job, preparation) for job in jobs]
    with ThreadPoolExecutor(FETCHING) as pool:
        return list(pool.map(lambda job: _input_size(job, preparation), jobs))


def _input_size(job: Job, preparation: Preparation) -> tuple[int, int]:
    try:
        return preparation.input_size(read_size(job.path, raw=job.raw))
    except BadImageError:
        return 0, 0  # its reason is found when it is opened


def make_records(extractor: Extractor, items: Items) -> Made:
    """Extract the decoded images of a batch.

    Batches are planned from headers; a file whose pixels differ from its header still gets its own batch.
    """
    made = Made(failures=[item for item in items if isinstance(item, Failure)])
    groups: dict[tuple[int, ...], list[Prepared]] = {}
    for item in items:
        if isinstance(item, Prepared):
            groups.setdefault(tuple(item.pixels.shape), []).append(item)
    for group in groups.values():
        started = monotonic()
        with torch.inference_mode():
            records = extractor.extract(group)
        made.seconds += monotonic() - started
        for item, record in zip(group, records, strict=True):
            record.id = item.id
        made.records += records
    return made


def pinned(items: Items) -> Items:
    """The items with their pixels in pinned memory, as DataLoader pins those of its workers."""
    return [item.pin_memory() if isinstance(item, Prepared) else item for item in items]


def check_ids(images: Sequence[tuple[str, Path | str]]) -> None:
    """Refuse an empty list, and two images of one id.

    Raises:
        DataError: either.
    """
    seen: dict[str, Path | str] = {}
    for name, path in images:
        if name in seen:
            expected = "names that differ without folders and extensions"
            raise DataError(f"two images are called {name!r}", got=f"{seen[name]} and {path}", expected=expected)
        seen[name] = path
    if not images:
        raise DataError("there are no images to extract", hint="check the folder or list given as images")
