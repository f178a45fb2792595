"""Read the features of others into a store, image after image; an interrupted import goes on where it stopped."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vlcli import registry
from vlcli.errors import ComponentError, DataError, UsageError
from vlcli.features.formats import ForeignImage, Format, FormatOptions, ImageNames
from vlcli.features.schema import Record
from vlcli.features.writer import FeatureWriter, written_whole
from vlcli.progress import Progress, ProgressTask, Silent
from vlcli.version import __version__


@dataclass(frozen=True)
class Bad:
    """An image that was left out, and why."""

    id: str
    where: str
    reason: str


@dataclass
class ImportReport:
    """What an import did.

    Attributes:
        path: the finished store.
        set: the box set.
        images: images it holds.
        written: images added by this run.
        resumed: images that were there already.
        errors: images left out.
    """

    path: Path
    set: str
    images: int = 0
    written: int = 0
    resumed: int = 0
    errors: list[Bad] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """The numbers a summary shows."""
        named = {"images": self.images, "written": self.written, "resumed": self.resumed}
        return {**named, "errors": len(self.errors)}


def import_features(
    format: str,
    source: str | Path,
    out: str | Path,
    *,
    set: str | None = None,
    dtype: str = "float16",
    compression: str | None = None,
    boxes: str | Path | None = None,
    pictures: str | Path | None = None,
    vocabulary: str | Path | None = None,
    ids: str | None = None,
    clip: bool = False,
    skip_bad: bool = False,
    resume: bool = True,
    progress: Progress | None = None,
) -> ImportReport:
    """Read a foreign file into a box set of a store; what the store holds already is not read again.

    A second file of the same kind adds its images. Where something is damaged, what came before it is kept: repair it
    and import again, or leave it out.

    Args:
        format: one of ``vlcli ls formats``.
        source: the file, folder or prefix.
        out: the store.
        set: box set; by default the format's own.
        dtype: float type of the store, ``float16`` or ``float32``.
        compression: ``gzip``, ``lzf`` or None.
        boxes: a second file with the boxes (vlp).
        pictures: a folder of pictures, or a COCO file, for names and sizes that the format does not say.
        vocabulary: the words that concepts are numbered by.
        ids: how an image is called, from its name in the file (``train/{}``) or the number that ends in
            (``COCO_val2014_{:012d}``).
        clip: cut boxes that leave their image instead of refusing them.
        skip_bad: leave damaged images out, listed in ``<out>.errors.jsonl``, instead of stopping.
        resume: go on with the store that is there; False starts anew.
        progress: where to report.

    Raises:
        UsageError: no such format, or ``ids`` cannot be used.
        DataError: the source is missing or damaged (the line is named), or the store was made differently.
        VlcliError: the disk is full.
    """
    kind, source, out = _kind(format), Path(source), Path(out)
    options = _options(boxes, pictures, vocabulary)
    _check_source(kind, source)
    provenance = _provenance(kind, source, options, ids, clip)
    report = ImportReport(out, kind.set if set is None else set)
    with FeatureWriter(
        out, provenance, set=report.set, dtype=dtype, compression=compression, resume=resume, background=True
    ) as writer:
        _Run(writer, report, ids, clip, skip_bad).read_all(kind, source, options, progress or Silent())
    _tell(report)
    return report


def _options(boxes: str | Path | None, pictures: str | Path | None, vocabulary: str | Path | None) -> FormatOptions:
    return FormatOptions(
        boxes=None if boxes is None else _there(boxes),
        pictures=None if pictures is None else ImageNames(_there(pictures)),
        vocabulary=None if vocabulary is None else _there(vocabulary),
    )


def _kind(format: str) -> Format:
    try:
        return registry.of(Format).build(format)
    except ComponentError as error:
        if format in registry.names("formats"):  # its package cannot be imported, or two packages have the name
            raise
        raise UsageError("There is no such format.", got=format, expected=error.expected, hint=error.hint) from None


def _there(path: str | Path) -> Path:
    if not Path(path).exists():
        raise DataError("There is no such file.", where=str(path), hint="check the path")
    return Path(path)


def _check_source(kind: Format, source: Path) -> None:
    if not source.exists() and not (kind.prefix and any(source.parent.glob(f"{source.name}*"))):
        _there(source)
    if source.is_dir() and not kind.folder:
        raise DataError("This is a folder.", where=str(source), expected=kind.source)


def _provenance(kind: Format, source: Path, options: FormatOptions, ids: str | None, clip: bool) -> dict[str, Any]:
    facts = {**kind.provenance, **kind.facts(source, options), "ids": ids or "as read", "clipped": clip}
    return {**facts, "sources": [source.name], "versions": {"vlcli": __version__}}


class _Run:
    """The state of one import."""

    def __init__(
        self, writer: FeatureWriter, report: ImportReport, ids: str | None, clip: bool, skip_bad: bool
    ) -> None:
        self.writer, self.report, self.clip, self.skip_bad = writer, report, clip, skip_bad
        self.rename = _rename(ids)
        self.before = frozenset(writer.done)
        self.places: dict[str, str] = {}

    def read_all(self, kind: Format, source: Path, options: FormatOptions, progress: Progress) -> None:
        """Take every image of the source; a source without any is refused."""
        with progress.task(f"importing {kind.name}", kind.count(source), "image") as task:
            self.read(kind.entries(source, options), task)
        self.report.images = len(self.writer)
        if not self.places:
            raise DataError("the source holds no image", where=str(source), expected=kind.source)

    def read(self, entries: Iterator[ForeignImage], task: ProgressTask) -> None:
        """Take what is not there yet."""
        for entry in entries:
            try:
                self._take(entry)
            except (ValueError, KeyError, TypeError) as error:
                self._fail(entry, str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}")
            except DataError as error:
                self._fail(entry, f"{error.what}: {error.got}" if error.got else error.what)
            task.advance()

    def _take(self, entry: ForeignImage) -> None:
        name = self.rename(entry.id) if entry.id else ""
        if name in self.places:
            raise ValueError(f"image {name!r} is there twice, first in {self.places[name]}")
        if name:
            self.places[name] = entry.where
        if name in self.before:
            self.report.resumed += 1
            return
        record = replace(entry.decode(), id=name)
        self.writer.append(clipped(record) if self.clip else record)
        self.report.written += 1

    def _fail(self, entry: ForeignImage, reason: str) -> None:
        if not self.skip_bad:
            hint = "mend it and import again (what came before it is kept), or leave such images out: --skip-bad"
            raise DataError("an image cannot be imported", where=entry.where, got=reason, hint=hint)
        self.report.errors.append(Bad(entry.id, entry.where, reason))


def _rename(ids: str | None) -> Any:
    if ids is None:
        return lambda name: name
    try:
        parts = [(field, spec) for _, field, spec, _ in string.Formatter().parse(ids) if field is not None]
        if len(parts) != 1 or parts[0][0] not in ("", "0"):
            raise ValueError(f"{len(parts)} fields")
        ids.format(1)
    except (ValueError, IndexError, KeyError) as error:
        raise UsageError(
            "The pattern of image ids cannot be used.",
            got=f"{ids} ({error})",
            expected="one {} for the name, or {:012d} and the like for the number it ends in",
        ) from None
    return (lambda name: ids.format(trailing_number(name))) if parts[0][1] else ids.format


def trailing_number(name: str) -> int:
    """The number a name ends in.

    Raises:
        ValueError: it does not end in one.
    """
    found = re.search(r"\d+$", name)
    if found is None:
        raise ValueError(f"the name {name!r} does not end in a number, as the pattern of ids needs")
    return int(found.group())


def clipped(record: Record) -> Record:
    """The record with its boxes cut to the image; a coordinate that is not finite stays, to be refused."""
    height, width = record.size
    limit = np.array([width, height, width, height], np.float32)
    boxes = np.asarray(record.boxes, np.float32)
    return replace(record, boxes=np.where(np.isfinite(boxes), np.clip(boxes, 0, limit), boxes))


def errors_file(out: Path) -> Path:
    """Where an import lists what it left out."""
    return out.with_name(f"{out.stem}.errors.jsonl")


def _tell(report: ImportReport) -> None:
    path = errors_file(report.path)
    if not report.errors:
        path.unlink(missing_ok=True)
        return
    with written_whole(path) as draft:
        lines: Sequence[str] = [json.dumps(asdict(bad), ensure_ascii=False) for bad in report.errors]
        draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
