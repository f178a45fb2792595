"""Reports an extraction: the part of each process, images that failed, and the totals."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from vlcli.errors import DataError
from vlcli.features.reader import FeatureStore
from vlcli.files import write_text


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
        """Counts for a summary."""
        names = ("images", "regions", "written", "resumed")
        return {**{name: getattr(self, name) for name in names}, "errors": len(self.errors)}


def add_up(
    report: ExtractionReport, parts: list[tuple[int, list[Failure], float]], images: Sequence[tuple[str, Path | str]]
) -> None:
    """Add up what all processes did; errors in the order of the images."""
    order = {name: number for number, (name, _) in enumerate(images)}
    report.written = sum(written for written, _, _ in parts)
    report.errors = sorted((error for _, errors, _ in parts for error in errors), key=lambda error: order[error.id])
    report.device_seconds = sum(seconds for _, _, seconds in parts)


def refusal(failure: Failure) -> DataError:
    """Return the error of an unusable image, where all images must be usable."""
    hint = "without --strict (strict: true) such images are listed in errors.jsonl and left out"
    return DataError("an image cannot be used", where=failure.path or failure.id, got=failure.reason, hint=hint)


def check_errors(report: ExtractionReport, asked: int) -> None:
    """Raise a DataError if none of the ``asked`` images could be used."""
    if len(report.errors) == asked:
        first = report.errors[0]
        raise DataError(
            "none of the images could be extracted",
            where=first.path or first.id,
            got=first.reason,
            expected=f"at least one usable image of {asked}",
            hint=f"all reasons are in {report.path.with_name('errors.jsonl')}",
        )


def write_errors(path: Path, errors: list[Failure]) -> None:
    """Write one JSON line per failed image; no file if there is none."""
    if not errors:
        path.unlink(missing_ok=True)
        return
    write_text(path, "".join(json.dumps(asdict(error), ensure_ascii=False) + "\n" for error in errors))


def write_totals(report: ExtractionReport, images: Sequence[tuple[str, Path | str]], name: str, started: float) -> None:
    """Fill in the totals of the finished store: images, regions, bytes and seconds."""
    store = FeatureStore(report.path, name)
    stored = [image for image, _ in images if image in store]
    report.images, report.regions = len(stored), sum(store.count(image) for image in stored)
    report.seconds = monotonic() - started
