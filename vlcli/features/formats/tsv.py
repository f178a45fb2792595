"""Reads and writes tab-separated features: one image a line, arrays in base64, no header.

Sources: airsplay/lxmert ``src/utils.py`` (obj36: height before width, labels with confidences) and
peteanderson80/bottom-up-attention ``tools/generate_tsv.py`` (butd: width before height, no labels).
"""

import base64
import binascii
import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from vlcli.features.formats.base import ForeignImage, Format, FormatOptions
from vlcli.features.schema import Record

# Bytes of the longest line that is read: 36 boxes of 2048 take 0.4 MB.
LONGEST = 64 << 20


@dataclass(frozen=True)
class Column:
    """A column of arrays: the record's field, its little-endian type, its width (0: a vector, None: any)."""

    field: str
    dtype: str
    width: int | None = 0


class TSVFormat(Format):
    """A TSV format; ``meaning`` of its columns, in order: ``id``, ``height``, ``width``, ``count``, or an array."""

    source = "a TSV file"
    meaning: ClassVar[dict[str, str | Column]]

    def entries(self, source: Path, options: FormatOptions) -> Iterator[ForeignImage]:
        with source.open("rb") as file:
            for number, line in enumerate(iter(partial(file.readline, LONGEST), b""), 1):
                where = f"{source}:{number}"
                if len(line) == LONGEST and not line.endswith(b"\n"):
                    yield ForeignImage("", where, partial(_refuse, f"the line is longer than {LONGEST >> 20} MiB"))
                    return
                cells = line.removeprefix(codecs.BOM_UTF8).rstrip(b"\r\n").split(b"\t")
                name = cells[list(self.meaning.values()).index("id")] if len(cells) == len(self.meaning) else b""
                if number == 1 and cells[0].decode("utf-8", "replace") == next(iter(self.meaning)):
                    continue  # a header, which some write
                if cells != [b""]:
                    yield ForeignImage(name.decode("utf-8", "replace"), where, partial(self._decode, cells))

    def _decode(self, cells: list[bytes]) -> Record:
        if len(cells) != len(self.meaning):
            short = "; the line is cut short" if len(cells) < len(self.meaning) else ""
            raise ValueError(f"{len(cells)} columns, expected {len(self.meaning)}{short}")
        row = dict(zip(self.meaning, cells, strict=True))
        cell_of = {what: row[name] for name, what in self.meaning.items() if isinstance(what, str)}
        size = (_whole(cell_of["height"], "height"), _whole(cell_of["width"], "width"))
        count = _whole(cell_of["count"], "number of boxes")
        arrays = {
            what.field: _array(row[name], what, count, name)
            for name, what in self.meaning.items()
            if isinstance(what, Column)
        }
        return Record(id=cell_of["id"].decode(), size=size, **arrays)

    def needs(self) -> dict[str, str]:
        return {what.field: name for name, what in self.meaning.items() if isinstance(what, Column)}

    def line(self, record: Record) -> bytes:
        """Format a record, absent labels as 0 with confidence 0; ValueError: its id or no features cannot be said."""
        if any(sign in record.id for sign in "\t\r\n\"'"):
            raise ValueError(f"the id {record.id!r} holds a tab, a quote or the end of a line")
        if not record.features.size:
            raise ValueError(f"image {record.id!r} has no features, which the format cannot say")
        values = {"id": record.id, "height": record.size[0], "width": record.size[1], "count": len(record)}
        cells = [
            str(values[what]).encode() if isinstance(what, str) else _cell(record, what)
            for what in self.meaning.values()
        ]
        return b"\t".join(cells) + b"\r\n"


def _refuse(reason: str) -> Record:
    raise ValueError(reason)


def _whole(cell: bytes, what: str) -> int:
    if not cell.strip().isdigit() or int(cell) < 1:
        raise ValueError(f"the {what} is {cell[:20].decode('utf-8', 'replace')!r}, expected a whole number from 1")
    return int(cell)


def _array(cell: bytes, column: Column, count: int, name: str) -> np.ndarray:
    if cell[:2] in (b"b'", b'b"'):  # bytes that Python 3 wrote as text
        cell = cell[2:-1]
    try:
        raw = base64.b64decode(cell, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{name} is not base64: {error}") from None
    dtype = np.dtype(column.dtype)
    rows = count * dtype.itemsize * (column.width or 1)
    whole = len(raw) == rows if column.width is not None else bool(raw) and count > 0 and len(raw) % rows == 0
    if not whole:
        wanted = f"{rows}" if column.width is not None else f"a multiple of {rows}"
        raise ValueError(f"{name} has {len(raw)} bytes, expected {wanted} for {count} boxes")
    values = np.frombuffer(raw, dtype)
    return values if column.width == 0 else values.reshape(count, -1)


def _cell(record: Record, column: Column) -> bytes:
    value = record.arrays().get(column.field, np.zeros(len(record)))
    return base64.b64encode(np.ascontiguousarray(value, dtype=column.dtype).tobytes())


class Obj36(TSVFormat):
    """LXMERT's TSV."""

    name = "obj36"
    about = "LXMERT's TSV: objects and attributes with confidences, boxes, features"
    provenance: ClassVar = {"extractor": "imported: obj36", "boxes": "detected"}
    meaning: ClassVar = {
        "img_id": "id",
        "img_h": "height",
        "img_w": "width",
        "objects_id": Column("classes", "<i8"),
        "objects_conf": Column("class_scores", "<f4"),
        "attrs_id": Column("attributes", "<i8"),
        "attrs_conf": Column("attribute_scores", "<f4"),
        "num_boxes": "count",
        "boxes": Column("boxes", "<f4", 4),
        "features": Column("features", "<f4", None),
    }


class Butd(TSVFormat):
    """Bottom-up attention's TSV."""

    name = "butd"
    about = "bottom-up attention's TSV: width before height, boxes, features, no labels"
    provenance: ClassVar = {"extractor": "imported: butd", "boxes": "detected"}
    meaning: ClassVar = {
        "image_id": "id",
        "image_w": "width",
        "image_h": "height",
        "num_boxes": "count",
        "boxes": Column("boxes", "<f4", 4),
        "features": Column("features", "<f4", None),
    }


OBJ36, BUTD = Obj36(), Butd()
