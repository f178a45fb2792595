"""Defines the layout of a feature store and the record of an image, and checks records.

A store is one HDF5 file. Every *box set* (detected boxes, ground truth, a grid ...) is a group ``/sets/<name>`` of flat
data sets in which the rows of all images follow one another::

    /                       attributes: format, schema, vlcli
    /sets/boxes             attributes: extractor, weights_sha256, boxes, dtype, dim
        ids        (n,)     fixed-length UTF-8
        sizes      (n, 2)   int32, height and width in pixels
        offsets    (n + 1,) int64, rows of image i are offsets[i] : offsets[i + 1]
        checksums  (n,)     uint32, CRC-32 of the record
        provenance ()       JSON: the extractor's name and parameters, versions, anything else
        features   (total, D)  float16 or float32
        boxes      (total, 4)  float32, pixels, x1 y1 x2 y2
        ...                    the optional fields of :data:`FIELDS`

Uncompressed data sets are contiguous, so that a reader maps them without going through HDF5.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vlcli.errors import DataError

FORMAT = "vlcli-features"
SCHEMA_VERSION = 1
DEFAULT_SET = "boxes"
"""Name of the box set by default."""
# Name of the box set of `vlcli.features.concepts`.
CONCEPT_SET = "concepts"
# Pixels by which a box may leave its image: published detections round their corners.
EDGE = 0.5
# Keys of a provenance that may differ between stores of one extraction.
HISTORY = ("versions", "sources")


@dataclass(frozen=True)
class Field:
    """One per-row data set.

    Attributes:
        dtype: type on disk; empty: the store's float type.
        width: columns; None: as the extractor has, 0: a vector.
    """

    dtype: str
    width: int | None


# Every per-row field by name; `features` and `boxes` are required.
FIELDS: dict[str, Field] = {
    "features": Field("", None),
    "boxes": Field("float32", 4),
    "scores": Field("float32", 0),
    "classes": Field("int32", 0),
    "class_scores": Field("float32", 0),
    "attributes": Field("int32", 0),
    "attribute_scores": Field("float32", 0),
    "class_probs": Field("", None),
    "attribute_probs": Field("", None),
    "box_ids": Field("S", 0),
}


@dataclass
class Record:
    """One image's regions.

    Attributes:
        id: the image, see :func:`vlcli.features.image_id`.
        features: region features (N, D).
        boxes: pixels x1 y1 x2 y2 (N, 4).
        size: height and width of the image in pixels.
        scores: confidences of the boxes (N,).
        classes: class ids (N,), with confidences ``class_scores`` (N,).
        attributes: attribute ids (N,), with confidences ``attribute_scores`` (N,).
        class_probs: distribution over classes (N, C).
        attribute_probs: distribution over attributes (N, A).
        box_ids: names of the boxes (N,), strings.
    """

    id: str
    features: np.ndarray
    boxes: np.ndarray
    size: tuple[int, int]
    scores: np.ndarray | None = None
    classes: np.ndarray | None = None
    class_scores: np.ndarray | None = None
    attributes: np.ndarray | None = None
    attribute_scores: np.ndarray | None = None
    class_probs: np.ndarray | None = None
    attribute_probs: np.ndarray | None = None
    box_ids: np.ndarray | None = None

    def __len__(self) -> int:
        return int(self.boxes.shape[0])

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}


def encode_strings(values: Iterable[Any]) -> np.ndarray:
    """Encode strings as fixed-length UTF-8 bytes, at least one byte wide."""
    return np.array([v if isinstance(v, bytes) else str(v).encode("utf-8", "surrogatepass") for v in values], dtype="S")


def decode_strings(values: np.ndarray) -> list[str]:
    """Decode fixed-length UTF-8 bytes."""
    return [value.decode("utf-8", "surrogatepass") for value in values.tolist()]


_UNFIT = "the record of image {!r} cannot be stored"


def normalise(record: Record, dtype: str) -> Record:
    """Convert a record to the types of a store whose float type is ``dtype``."""
    changed: dict[str, Any] = {}
    try:
        if not isinstance(record.id, str):
            raise TypeError(f"an id of type {type(record.id).__name__}")
        for name, value in record.arrays().items():
            if FIELDS[name].dtype == "S":
                changed[name] = encode_strings(np.asarray(value).tolist())
            else:
                with np.errstate(over="ignore", invalid="ignore"):  # check_record refuses inf, with its cause
                    changed[name] = np.ascontiguousarray(value, dtype=FIELDS[name].dtype or dtype)
                if changed[name].dtype.kind == "i" and (changed[name] != value).any():
                    raise DataError(f"{name} of image {record.id!r} are no whole numbers of 32 bits")
        height, width = record.size
        return Record(id=record.id, size=(int(height), int(width)), **changed)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:  # torch refuses bfloat16 and gradients so
        what, expected = _UNFIT.format(record.id), "a text as id, numpy arrays, two whole sizes"
        raise DataError(what, got=str(error), expected=expected) from None


def record_problems(record: Record) -> list[str]:
    """Return every fault of a record, one sentence each."""
    rows = record.boxes.shape[0] if record.boxes.ndim else -1
    problems = [] if record.id else ["the record has no id"]
    if record.id != record.id.replace("\0", "").encode(errors="ignore").decode():
        problems.append("its id is no Unicode text (a file name of another encoding?): rename it")
    if not 1 <= min(record.size) <= max(record.size) < 1 << 31:
        problems.append(f"the image size {record.size} is not positive, or takes more than 32 bits")
    for name, value in record.arrays().items():
        problems += _field_problems(name, value, rows)
    if not problems and rows:
        problems += _box_problems(record)
    return problems


def _field_problems(name: str, value: np.ndarray, rows: int) -> list[str]:
    width = FIELDS[name].width
    rank = 1 if width == 0 else 2
    if value.ndim != rank or (width and value.shape[1] != width) or value.shape[0] != rows:
        wanted = (rows,) if width == 0 else (rows, width or "D")
        return [f"{name} has shape {value.shape}, expected {wanted}"]
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        bad = int(np.count_nonzero(~np.isfinite(value)))
        overflow = value.dtype == np.float16 and np.isinf(value).any()
        cause = "; a float16 store ends at 65504, use float32" if overflow else ""
        return [f"{name} holds {bad} values that are not finite{cause}"]
    return []


def _box_problems(record: Record) -> list[str]:
    height, width = record.size
    boxes = record.boxes
    limit = np.array([width, height, width, height], dtype=np.float32)
    outside = ((boxes < -EDGE) | (boxes > limit + EDGE)).any(axis=1)
    crossed = (boxes[:, 2:] < boxes[:, :2]).any(axis=1)
    return [
        f"box {row} {boxes[row].tolist()} {what} the image of {width} x {height} pixels"
        for faulty, what in ((outside, "leaves"), (crossed, "has its corners crossed in"))
        for row in np.flatnonzero(faulty)[:1]
    ]


def check_record(record: Record, where: str = "") -> None:
    """Refuse a faulty record. Raises DataError: a value is not finite, a box leaves the image, or shapes disagree."""
    if problems := record_problems(record):
        what, got = _UNFIT.format(record.id), "; ".join(problems)
        expected = "finite values, boxes inside the image as x1 y1 x2 y2 pixels, one row per box in every field"
        raise DataError(what, where=where, got=got, expected=expected)


def checksum(record: Record) -> int:
    """Return the CRC-32 of the id, the size and every field of a normalised record."""
    value = zlib.crc32(f"{record.id}\0{record.size[0]}\0{record.size[1]}".encode())
    for name, array in record.arrays().items():
        # Fixed-length strings are padded to the widest of the file; their checksum must not depend on it.
        data = b"\0".join(array.tolist()) if array.dtype.kind == "S" else np.ascontiguousarray(array).data
        value = zlib.crc32(data, zlib.crc32(name.encode(), value))
    return value


def layout(record: Record) -> dict[str, int]:
    """Return the fields of a record and their widths (0: a vector), equal for all records of a box set."""
    return {name: value.shape[1] if value.ndim == 2 else 0 for name, value in record.arrays().items()}


def same_extraction(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether two provenances describe the same extraction (versions and imported files may differ)."""
    ignored = dict.fromkeys(HISTORY)
    return {**ours, **ignored} == {**theirs, **ignored}


def join_provenance(provenances: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the last of several provenances of one extraction, with the sources of all."""
    sources = [source for provenance in provenances for source in provenance.get("sources", ())]
    different = [source for number, source in enumerate(sources) if source not in sources[:number]]
    return {**provenances[-1], **({"sources": different} if different else {})}
