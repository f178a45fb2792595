"""Reads VLP's sharded HDF5 (LuoweiZhou/VLP ``vlp/seq2seq_loader.py``, written by detectron-vlp).

``PREFIX_featSSS.h5`` and ``PREFIX_clsSSS.h5`` hold one data set an image, SSS being the last three signs of its
name; one file holds the boxes of all of them (before its authors merge them: ``PREFIX_bboxSSS.h5``) as x1 y1 x2 y2,
class, confidence. Their class counts the background as 0, a store's does not: it is one less, and -1 where no class
survived. The sizes of the images are nowhere: without the pictures they are taken as far as the boxes reach, as VLP
itself does.
"""

import re
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np

from vlcli.errors import DataError
from vlcli.features.formats.base import ForeignImage, Format, FormatOptions, ImageNames, named_size, size_facts
from vlcli.features.schema import Record

_SHARD = re.compile(r"^(?P<prefix>.*)_feat(?P<shard>.{3})\.h5$")


class Vlp(Format):
    """VLP's features, class probabilities and boxes."""

    name = "vlp"
    about = "VLP's HDF5: PREFIX_featSSS.h5, PREFIX_clsSSS.h5 and a file of boxes (--boxes)"
    source = "a prefix, or the folder of the shards"
    folder = prefix = True
    provenance: ClassVar = {"extractor": "imported: vlp", "boxes": "detected"}

    def facts(self, source: Path, options: FormatOptions) -> dict[str, Any]:
        return size_facts(options)

    def entries(self, source: Path, options: FormatOptions) -> Iterator[ForeignImage]:
        for path in _shards(source):
            probs_file = path.with_name(path.name.replace("_feat", "_cls"))
            with (
                _opened(path) as features,
                _opened(options.boxes or _box_file(path)) as boxes,
                _opened(probs_file) if probs_file.is_file() else nullcontext() as probs,
            ):
                for name in features:
                    decode = partial(_decode, name, features, probs, boxes, options.pictures)
                    yield ForeignImage(name, f"{path}[{name}]", decode)

    def count(self, source: Path) -> int:
        total = 0
        for path in _shards(source):
            with _opened(path) as file:
                total += len(file)
        return total


def _shards(source: Path) -> list[Path]:
    folder, prefix = (source, None) if source.is_dir() else (source.parent, source.name)
    families: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*_feat???.h5")):
        match = _SHARD.match(path.name)
        if match and prefix in (None, match["prefix"]):
            families.setdefault(match["prefix"], []).append(path)
    if len(families) != 1:
        what = "there are several families of shards" if families else "VLP's shards are not found"
        expected = "a prefix such as feat_cls_1000/coco_detection_vg_100dets_gvd_checkpoint_trainval"
        raise DataError(what, where=str(source), got=", ".join(families) or "no file *_featSSS.h5", expected=expected)
    return next(iter(families.values()))


def _box_file(shard: Path) -> Path:
    beside = shard.with_name(shard.name.replace("_feat", "_bbox"))
    if beside.is_file():
        return beside
    around = sorted({*shard.parent.glob("*bbox*.h5"), *shard.parent.parent.glob("*bbox*.h5")})
    if len(around) != 1:
        got = ", ".join(map(str, around)) or f"no *bbox*.h5 in {shard.parent} or above it"
        raise DataError("which file holds the boxes?", where=str(shard), got=got, hint="name it: --boxes FILE")
    return around[0]


def _opened(path: Path) -> h5py.File:
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DataError("the file cannot be opened as HDF5", where=str(path), got=str(error)) from None


def _decode(
    name: str, features: h5py.File, probs: h5py.File | None, boxes: h5py.File, pictures: ImageNames | None
) -> Record:
    if name not in boxes:
        raise ValueError(f"{boxes.filename} has no boxes of it")
    if probs is not None and name not in probs:
        raise ValueError(f"{probs.filename} has no class probabilities of it")
    try:
        table = np.asarray(boxes[name][()], np.float32)  # (N, 6)
        rows, classes = features[name][()], None if probs is None else probs[name][()]
    except OSError as error:
        raise ValueError(f"it cannot be read: {error}") from None
    if table.ndim != 2 or table.shape[1] != 6:
        raise ValueError(f"its boxes have shape {table.shape}, expected (N, 6)")
    corner = (float(table[:, [0, 2]].max(initial=1)), float(table[:, [1, 3]].max(initial=1)))
    return Record(
        id=name,
        features=rows,
        boxes=table[:, :4],
        size=named_size(name, pictures, corner),
        scores=table[:, 5],
        classes=table[:, 4] - 1,
        class_scores=table[:, 5],
        class_probs=classes,
    )
