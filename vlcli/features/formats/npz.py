"""A folder with one npz an image, as MILVLG/bottom-up-attention.pytorch writes (``utils/extract_utils.py``).

``info`` in such a file is a pickle and is never read. Labels are taken where they are plain arrays under the names
that ``info`` gives them: ``objects_id``, ``objects_conf``, ``attrs_id``, ``attrs_conf``.
"""

import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from vlcli.errors import DataError
from vlcli.features.formats.base import PICTURES, ForeignImage, Format, FormatOptions, ImageNames, named_size
from vlcli.features.schema import Record
from vlcli.images.boxes import image_id

ARRAYS = ("x", "bbox", "num_bbox", "image_h", "image_w")
LABELS = {
    "classes": "objects_id",
    "class_scores": "objects_conf",
    "attributes": "attrs_id",
    "attribute_scores": "attrs_conf",
}


class Npz(Format):
    """One npz an image."""

    name = "npz"
    about = "a folder with an npz an image: x, bbox, num_bbox, image_h, image_w (MILVLG)"
    source = "a folder"
    folder = True
    provenance: ClassVar = {"extractor": "imported: npz", "boxes": "detected"}

    def entries(self, source: Path, options: FormatOptions) -> Iterator[ForeignImage]:
        paths = _files(source)
        if not paths:
            raise DataError("the folder holds no npz file", where=str(source), expected="files *.npz")
        for path in paths:
            yield ForeignImage(_name(path), str(path), partial(_decode, path, options.pictures))

    def count(self, source: Path) -> int:
        return len(_files(source))


def _files(source: Path) -> list[Path]:
    return sorted(source.rglob("[!.]*.npz")) if source.is_dir() else [source]


def _name(path: Path) -> str:  # of COCO_val2014_000000000042.jpg.npz too, as MCAN's features are called
    return path.stem if Path(path.stem).suffix.lower() not in PICTURES else image_id(path.stem)


def _decode(path: Path, pictures: ImageNames | None) -> Record:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in (*LABELS.values(), *ARRAYS) if name in file.files}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise ValueError(f"the file is damaged: {error}") from None
    if "bbox" not in arrays:
        raise ValueError("the file has no array bbox")
    boxes = np.asarray(arrays["bbox"], np.float32).reshape(-1, 4)
    rows = int(arrays.get("num_bbox", np.array(len(boxes))).item())
    if not 0 <= rows <= len(boxes):
        raise ValueError(f"num_bbox is {rows}, there are {len(boxes)} boxes")
    features = _features(arrays["x"], len(boxes)) if "x" in arrays else np.zeros((len(boxes), 0), np.float32)
    labels = {field: arrays[name][:rows] for field, name in LABELS.items() if name in arrays}
    name = _name(path)
    if {"image_h", "image_w"} <= set(arrays):
        size = (int(arrays["image_h"].item()), int(arrays["image_w"].item()))
    else:
        size = named_size(name, pictures, tuple(boxes[:, 2:].max(0, initial=1).tolist()))
    return Record(name, features[:rows], boxes[:rows], size, **labels)


def _features(x: np.ndarray, rows: int) -> np.ndarray:
    """Return features (N, D), also of a file with (D, N) or a leading axis of one."""
    x = x[0] if x.ndim == 3 and len(x) == 1 else x
    if x.ndim == 2 and len(x) == rows:
        return x
    if x.ndim == 2 and x.shape[1] == rows:
        return x.T
    raise ValueError(f"x has shape {x.shape} for {rows} boxes")
