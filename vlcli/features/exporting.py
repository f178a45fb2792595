"""Writes a store as a table of another project's format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vlcli.errors import DataError, UsageError
from vlcli.features.formats import TABLES
from vlcli.features.reader import FeatureStore
from vlcli.features.writer import written_whole
from vlcli.progress import Progress, Silent


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
        store: the features.
        out: the new file; appears only when it is whole.
        images: only these, in this order.
        progress: of the images.

    Raises:
        UsageError: no such format.
        DataError: an image is missing, or its id cannot stand in the file.
        VlcliError: the disk is full.
    """
    if format not in TABLES:
        raise UsageError("There is no such format.", got=format, expected=", ".join(TABLES))
    table, out = TABLES[format], Path(out)
    names = list(store.ids if images is None else images)
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
                raise DataError("an image cannot be exported", where=store.where, got=str(error)) from None
            task.advance()
    return ExportReport(out, len(names), _notes(table.needs(), store))


def _notes(columns: dict[str, str], store: FeatureStore) -> list[str]:
    absent = [column for name, column in columns.items() if name not in store.fields]
    notes = [f"the store lacks {', '.join(absent)}: they are 0, and so is their weight"] if absent else []
    if store.dtype != "float32":
        notes.append(f"features are {store.dtype} in the store: the table has them rounded so")
    return notes
