"""Imports features of other formats into a store, resuming where it stopped, and exports stores."""

import glob
import json
import string
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vlcli import registry
from vlcli.errors import ComponentError, DataError, UsageError
from vlcli.features.formats import TABLES, ForeignImage, Format, FormatOptions, ImageNames
from vlcli.features.reader import FeatureStore
from vlcli.features.writer import FeatureWriter, written_whole
from vlcli.files import flocked
from vlcli.images.boxes import trailing_number
from vlcli.progress import Progress, Silent
from vlcli.version import __version__


@dataclass
class ExportReport:
    """Result of an export: the new file, its number of lines, and notes for its reader."""

    path: Path
    images: int = 0
    notes: list[str] = field(default_factory=list)


def export_features(
    format: str,
    store: FeatureStore,
    out: str | Path,
    *,
    images: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> ExportReport:
    """Write a store as a TSV, in the store's order.

    Args:
        format: one of :data:`vlcli.features.formats.TABLES`.
        out: the new file; appears only when it is whole.
        images: only these, in this order.

    Raises:
        UsageError: no such format.
        DataError: an image is missing, or its id cannot stand in the file.
        VlcliError: the disk is full.
    """
    if format not in TABLES:
        raise UsageError("There is no such format.", got=format, expected=", ".join(TABLES))
    table, out = TABLES[format], Path(out)
    names = list(dict.fromkeys(store.ids if images is None else images))
    store.require(names)
    fields = [name for name in table.needs() if name in store.fields]
    with (
        written_whole(out) as draft,
        draft.open("wb") as file,
        (progress or Silent()).task(f"exporting {format}", len(names), "image") as task,
    ):
        for name in names:
            try:
                file.write(table.line(store.read(name, fields, copy=False)))
            except ValueError as error:
                what, hint = "an image cannot be exported", "name the others: --images FILE"
                raise DataError(what, where=store.where, got=str(error), hint=hint) from None
            task.advance()
    return ExportReport(out, len(names), _notes(table.needs(), store))


def _notes(columns: dict[str, str], store: FeatureStore) -> list[str]:
    absent = [column for name, column in columns.items() if name not in store.fields]
    notes = [f"the store lacks {', '.join(absent)}: they are 0, and so is their weight"] if absent else []
    if store.dtype != "float32":
        notes.append(f"features are {store.dtype} in the store: the table has them rounded so")
    return notes


@dataclass(frozen=True)
class Bad:
    """An image that was left out, and why."""

    id: str
    where: str
    reason: str


@dataclass
class ImportReport:
    """Result of an import into the box set ``set`` of the store ``path``.

    Attributes:
        images: images in the store.
        written: images added by this run.
        resumed: images that the store had before.
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
        return {"images": self.images, "written": self.written, "resumed": self.resumed, "errors": len(self.errors)}


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
    """Import a file into a box set of a store; images that the store has are not read again.

    A second file of the same kind adds its images. Images before a damaged one are kept.

    Args:
        format: one of ``vlcli ls formats``.
        set: box set; by default the format's own.
        dtype: ``float16`` or ``float32``.
        compression: ``gzip``, ``lzf`` or None.
        boxes: a second file with the boxes (vlp).
        pictures: a folder of pictures, or a COCO file, for names and sizes that the format lacks.
        vocabulary: the words in the order of the concepts' numbers.
        ids: pattern of image ids, from an image's name in the file (``train/{}``) or the number that it ends in
            (``COCO_val2014_{:012d}``).
        clip: clip boxes to their images.
        skip_bad: leave damaged images out, listed in ``<out>.errors.jsonl``, instead of stopping.
        resume: continue an existing store; False starts anew.

    Raises:
        UsageError: no such format, or ``ids`` cannot be used.
        DataError: the source is missing or damaged (the line is named), or the store was made differently.
        VlcliError: the disk is full.
    """
    kind, source, out = _kind(format), Path(source), Path(out)
    options = FormatOptions(
        boxes=None if boxes is None else _existing(boxes),
        pictures=None if pictures is None else ImageNames(_existing(pictures)),
        vocabulary=None if vocabulary is None else _existing(vocabulary),
    )
    if not (kind.prefix and any(source.parent.glob(f"{glob.escape(source.name)}*"))):
        _existing(source)
    if source.is_dir() and not kind.folder:
        raise DataError("This is a folder.", where=str(source), expected=kind.source)
    provenance = {
        **kind.provenance,
        **kind.facts(source, options),
        "ids": ids or "as read",
        "clipped": clip,
        "sources": [source.name],
        "versions": {"vlcli": __version__},
    }
    report = ImportReport(out, kind.set if set is None else set)
    how: dict[str, Any] = {"set": report.set, "dtype": dtype, "compression": compression, "resume": resume}
    with _alone(out), FeatureWriter(out, provenance, background=True, **how) as writer:
        _Run(writer, report, ids, clip, skip_bad).read_all(kind, source, options, progress or Silent())
    errors_file(out).unlink(missing_ok=True)
    if report.errors:
        lines = [json.dumps(asdict(bad), ensure_ascii=False) for bad in report.errors]
        with written_whole(errors_file(out)) as draft:
            draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return report


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    lock = out.with_name(f".{out.name}.lock")
    with flocked(lock) as held:
        if held is None:
            hint = "run this one again once it has ended"
            raise DataError("Another import writes this store.", where=str(out), hint=hint)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _kind(format: str) -> Format:
    try:
        return registry.of(Format).build(format)
    except ComponentError as error:
        if format in registry.names("formats"):  # its package cannot be imported, or two packages have the name
            raise
        raise UsageError("There is no such format.", got=format, expected=error.expected, hint=error.hint) from None


def _existing(path: str | Path) -> Path:
    if not Path(path).exists():
        raise DataError("There is no such file.", where=str(path), hint="check the path")
    return Path(path)


class _Run:
    """The state of one import."""

    def __init__(
        self, writer: FeatureWriter, report: ImportReport, ids: str | None, clip: bool, skip_bad: bool
    ) -> None:
        self.writer, self.report, self.clip, self.skip_bad = writer, report, clip, skip_bad
        self.rename = _rename(ids)
        self.before = frozenset(writer.done)
        self.read: dict[str, str] = {}

    def read_all(self, kind: Format, source: Path, options: FormatOptions, progress: Progress) -> None:
        with progress.task(f"importing {kind.name}", kind.count(source), "image") as task:
            for entry in kind.entries(source, options):
                try:
                    self._take(entry)
                except (ValueError, LookupError, TypeError, OverflowError) as error:
                    kind_of = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
                    self._fail(entry, f"{kind_of}{error}")
                except DataError as error:
                    self._fail(entry, f"{error.what}: {error.got}" if error.got else error.what)
                task.advance()
        self.report.images = len(self.writer)
        if not self.read:
            raise DataError("the source holds no image", where=str(source), expected=kind.source)

    def _take(self, entry: ForeignImage) -> None:
        name = self.rename(entry.id) if entry.id else ""
        if name in self.read:
            raise ValueError(f"image {name!r} is there twice, first in {self.read[name]}")
        if name:
            self.read[name] = entry.where
        if name in self.before:
            self.report.resumed += 1
            return
        record = replace(entry.decode(), id=name)
        if self.clip:
            limit = np.array([*record.size[::-1]] * 2, np.float32)
            boxes = np.asarray(record.boxes, np.float32)
            # A coordinate that is not finite stays, to be refused.
            record.boxes = np.where(np.isfinite(boxes), np.clip(boxes, 0, limit), boxes)
        self.writer.append(record)
        self.report.written += 1

    def _fail(self, entry: ForeignImage, reason: str) -> None:
        if not self.skip_bad:
            hint = "mend it and import again (what came before it is kept), or leave such images out: --skip-bad"
            raise DataError("an image cannot be imported", where=entry.where, got=reason, hint=hint)
        self.report.errors.append(Bad(entry.id, entry.where, reason))


def _rename(ids: str | None) -> Callable[[str], str]:
    if ids is None:
        return str
    try:
        parts = [(field, spec) for _, field, spec, _ in string.Formatter().parse(ids) if field is not None]
        if len(parts) != 1 or parts[0][0] not in ("", "0"):
            raise ValueError(f"{len(parts)} fields")
        ids.format(1)
    except (ValueError, IndexError, KeyError) as error:
        expected = "one {} for the name, or {:012d} and the like for the number it ends in"
        what, got = "The pattern of image ids cannot be used.", f"{ids} ({error})"
        raise UsageError(what, got=got, expected=expected) from None

    def by_number(name: str) -> str:
        number = trailing_number(name)
        if number is None:
            raise ValueError(f"the name {name!r} does not end in a number, as the pattern of ids needs")
        return ids.format(number)

    return by_number if parts[0][1] else ids.format


def errors_file(out: Path) -> Path:
    """Return the file in which an import lists the images left out."""
    return out.with_name(f"{out.stem}.errors.jsonl")
