"""Extracts region features of images in batches, in this process or in several, and writes the report of it."""

import json
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, TypeVar

import torch
from torch.utils.data import Dataset

from vlcli.detection.extractor import Extractor, Preparation, Prepared
from vlcli.errors import DataError
from vlcli.features.reader import FeatureStore
from vlcli.features.schema import Record
from vlcli.files import write_text
from vlcli.images.boxes import BoxList, boxes_for
from vlcli.images.files import BadImageError, open_image, read_content, read_size
from vlcli.images.remote import is_remote


@dataclass(frozen=True)
class Share:
    """Rank and world size of a process that extracts or evaluates together with others."""

    rank: int = 0
    count: int = 1
    wait: Callable[[], None] = lambda: None  # returns when all have called it
    gather: Callable[[Any], list[Any]] = lambda value: [value]  # the values of all ranks, in order


@dataclass(frozen=True)
class Failure:
    """An image without a record, and why."""

    id: str
    path: str
    reason: str


@dataclass
class ExtractionReport:
    """Totals of an extraction."""

    path: Path  # The finished store
    images: int = 0  # Images asked for that the store now holds
    regions: int = 0
    written: int = 0
    resumed: int = 0  # Images that were done before this run
    seconds: float = 0.0
    device_seconds: float = 0.0  # Time inside the extractor
    errors: list[Failure] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        names = ("images", "regions", "written", "resumed")
        return {**{name: getattr(self, name) for name in names}, "errors": len(self.errors)}

    def write_errors(self, asked: int) -> None:
        """Write one JSON line per failed image, no file without any. DataError: all ``asked`` images failed."""
        path = self.path.with_name("errors.jsonl")
        if not self.errors:
            path.unlink(missing_ok=True)
            return
        write_text(path, "".join(json.dumps(asdict(error), ensure_ascii=False) + "\n" for error in self.errors))
        if len(self.errors) == asked:
            first = self.errors[0]
            what, where = "none of the images could be extracted", first.path or first.id
            got, expected = first.reason, f"at least one usable image of {asked}"
            raise DataError(what, where=where, got=got, expected=expected, hint=f"all reasons are in {path}")


FETCHING = 16  # Remote pictures that a process reads at a time
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """One image to prepare."""

    id: str  # image id
    path: Path | str  # file, or remote address
    boxes: BoxList | None  # given boxes
    content: bytes | None = None  # bytes of the file, where they were read already

    @property
    def raw(self) -> tuple[int, int] | None:
        return self.boxes.size if self.boxes is not None else None

    @property
    def far(self) -> bool:
        return isinstance(self.path, str) and self.content is None


Items = list[Prepared | Failure]


@dataclass
class Extracted:
    """Records of a batch, the images that failed, and the seconds inside the extractor."""

    records: list[Record] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0


class Cluster(Protocol):
    """Runs the parts of an extraction on other machines; components of the kind ``engines`` make one."""

    def map(self, function: Callable[..., Any], parts: Sequence[Any], *shared: Any) -> list[Any]:
        """Return ``function(part, *shared)`` of each part, in order."""

    def extract(
        self,
        batches: Iterator[list[Job]],
        extractor: Extractor,
        load: Callable[[list[Job]], list[Any]],
        decode: Callable[[list[Any], Preparation], Items],
        extract: Callable[[Extractor, Items], Extracted],
    ) -> Generator[Extracted, None, None]:
        """Yield the records of every batch: loaded in this process, decoded and extracted in the cluster's."""


class Decoder(Dataset[Items]):
    """Decodes batches of jobs in loader workers, or reads their stored regions; an index is a whole batch."""

    def __init__(self, preparation: Preparation, source: FeatureStore | None = None) -> None:
        self.preparation, self.source = preparation, source

    def __getitem__(self, batch: list[Job]) -> Items:
        return prepare_all(load(batch, self.source) if self.source is not None else batch, self.preparation)


def jobs_of(images: Sequence[tuple[str, Path | str]], boxes: Mapping[str, BoxList]) -> list[Job]:
    """Return a job for each (id, file or address)."""
    return [
        Job(name, path if isinstance(path, str) and is_remote(path) else Path(path), boxes_for(boxes, name))
        for name, path in images
    ]


def load(batch: Sequence[Job], source: FeatureStore | None) -> list[Job | Prepared | Failure]:
    """Return stored regions from ``source``; without it the jobs, with the content of local files."""
    loaded: list[Job | Prepared | Failure] = []
    for job in batch:
        try:
            if source is None:
                loaded.append(job if isinstance(job.path, str) else replace(job, content=read_content(job.path)))
            elif job.id in source:
                record = source.read(job.id)
                loaded.append(Prepared(torch.empty(0), record.size, (1.0, 1.0), None, job.id, record))
            else:
                raise BadImageError(f"no regions in {source.where}")
        except BadImageError as error:
            loaded.append(Failure(job.id, str(job.path), str(error)))
    return loaded


def prepare_all(batch: Sequence[Job | Prepared | Failure], preparation: Preparation) -> Items:
    """Decode and resize the jobs among the items; remote pictures are fetched side by side."""
    jobs = [item for item in batch if isinstance(item, Job)]
    rest: Items = [item for item in batch if not isinstance(item, Job)]
    return rest + _each(partial(prepare, preparation=preparation), jobs)


def prepare(job: Job, preparation: Preparation) -> Prepared | Failure:
    """Decode and resize one image, or return why it cannot be used."""
    try:
        image = open_image(job.path if job.content is None else job.content, raw=job.raw)
        return replace(preparation(image, job.boxes), id=job.id)
    except (BadImageError, ValueError) as error:
        return Failure(job.id, str(job.path), str(error))


def input_sizes(jobs: Sequence[Job], preparation: Preparation) -> list[tuple[int, int]]:
    """Return height and width of each image after resizing, from its header; 0, 0 of one that cannot be read."""

    def size(job: Job) -> tuple[int, int]:
        with suppress(BadImageError):  # the reason is reported when it is opened
            return preparation.input_size(read_size(job.path, raw=job.raw))
        return 0, 0

    return _each(size, jobs)


def _each(function: Callable[[Job], T], jobs: Sequence[Job]) -> list[T]:
    if not any(job.far for job in jobs):
        return [function(job) for job in jobs]
    with ThreadPoolExecutor(FETCHING) as pool:
        return list(pool.map(function, jobs))


def make_records(extractor: Extractor, items: Items) -> Extracted:
    """Extract the decoded images of a batch; those whose pixels differ from their header, in a group of their own."""
    result = Extracted(failures=[item for item in items if isinstance(item, Failure)])
    groups: dict[tuple[int, ...], list[Prepared]] = defaultdict(list)
    for item in (item for item in items if isinstance(item, Prepared)):
        groups[tuple(item.pixels.shape)].append(item)
    for group in groups.values():
        started = monotonic()
        with torch.inference_mode():
            records = extractor.extract(group)
        result.seconds += monotonic() - started
        for item, record in zip(group, records, strict=True):
            record.id = item.id
        result.records += records
    return result


def check_ids(images: Sequence[tuple[str, Path | str]]) -> None:
    """Refuse an empty list, and two images of one id."""
    seen: dict[str, Path | str] = {}
    for name, path in images:
        if name in seen:
            expected = "names that differ without folders and extensions"
            raise DataError(f"two images are called {name!r}", got=f"{seen[name]} and {path}", expected=expected)
        seen[name] = path
    if not images:
        raise DataError("there are no images to extract", hint="check the folder or list given as images")
