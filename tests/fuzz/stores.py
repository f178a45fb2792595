"""Bad feature stores and box files: bytes, structure, values, links."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.fuzz.harness import Content, Trial

SET = "sets/boxes"


def _copy(change: Callable[[h5py.File], None] | None = None) -> Callable[[Path, Path], None]:
    """A copy of the valid store, changed."""

    def make(path: Path, valid: Path) -> None:
        shutil.copy(valid / "runs/valid/regions/features.h5", path)
        if change is not None:
            with h5py.File(path, "r+") as file:
                change(file)

    return make


def _bytes(change: Callable[[bytearray], None]) -> Callable[[Path, Path], None]:
    def make(path: Path, valid: Path) -> None:
        data = bytearray((valid / "runs/valid/regions/features.h5").read_bytes())
        change(data)
        path.write_bytes(bytes(data))

    return make


def _group(file: h5py.File) -> h5py.Group:
    return file[f"sets/{next(iter(file['sets']))}"]


def _put(name: str, value: Any, **how: Any) -> Callable[[h5py.File], None]:
    """Replace a data set."""

    def change(file: h5py.File) -> None:
        group = _group(file)
        del group[name]
        group.create_dataset(name, data=value, **how)

    return change


def _value(name: str, place: Any, value: Any) -> Callable[[h5py.File], None]:
    """Change one value in place."""

    def change(file: h5py.File) -> None:
        data = _group(file)[name]
        content = data[()]
        content[place] = value
        data[...] = content

    return change


def _drop(name: str) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del _group(file)[name]

    return change


def _link(name: str, link: Any) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        group = _group(file)
        del group[name]
        group[name] = link

    return change


def _loop(file: h5py.File) -> None:
    group = _group(file)
    del group["features"]
    group["features"] = h5py.SoftLink(f"{group.name}/other")
    group["other"] = h5py.SoftLink(f"{group.name}/features")


def _no_sets(file: h5py.File) -> None:
    del file["sets"]


def _sets_loop(file: h5py.File) -> None:
    del file["sets"]
    file["sets"] = h5py.SoftLink("/sets")


def _cut(size: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        del data[size:]

    return change


def _flip(place: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[place % len(data)] ^= 0xFF

    return change


def _prefix(size: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[:0] = data[:size]

    return change


def _longer(data: bytearray) -> None:
    data += b"\x00" * 100


CHANGES: dict[str, Content] = {
    "empty": b"",
    "text": "no store",
    "cut-100": _bytes(_cut(100)),
    "cut-2000": _bytes(_cut(2000)),
    "cut-end": _bytes(_cut(-1)),
    "prefixed": _bytes(_prefix(229)),
    "doubled": _bytes(_prefix(2109)),
    "longer": _bytes(_longer),
    "flip-0": _bytes(_flip(0)),
    "flip-40": _bytes(_flip(40)),
    "flip-middle": _bytes(_flip(3001)),
    "flip-end": _bytes(_flip(-3)),
    "no-sets": _copy(_no_sets),
    "sets-loop": _copy(_sets_loop),
    "no-features": _copy(_drop("features")),
    "no-boxes": _copy(_drop("boxes")),
    "no-ids": _copy(_drop("ids")),
    "no-sizes": _copy(_drop("sizes")),
    "no-offsets": _copy(_drop("offsets")),
    "no-provenance": _copy(_drop("provenance")),
    "features-loop": _copy(_loop),
    "features-self": _copy(_link("features", h5py.SoftLink("features"))),
    "features-dangling": _copy(_link("features", h5py.SoftLink("/nothing"))),
    "features-outside": _copy(_link("features", h5py.ExternalLink("/etc/passwd", "/x"))),
    "features-group": _copy(_link("features", h5py.SoftLink("/sets"))),
    "ids-numbers": _copy(_put("ids", np.arange(4))),
    "ids-empty": _copy(_put("ids", np.zeros(0, "S4"))),
    "ids-twice": _copy(_value("ids", 1, b"000000000001")),
    "offsets-negative": _copy(_value("offsets", 1, -5)),
    "offsets-falling": _copy(_value("offsets", 1, 10**6)),
    "offsets-float": _copy(_put("offsets", np.array([0.0, np.nan]))),
    "offsets-scalar": _copy(_put("offsets", 3)),
    "sizes-word": _copy(_put("sizes", b"wide")),
    "boxes-nan": _copy(_value("boxes", 0, np.nan)),
    "boxes-infinite": _copy(_value("boxes", 0, np.inf)),
    "boxes-flat": _copy(_put("boxes", np.zeros(7, "f4"))),
    "boxes-words": _copy(_put("boxes", np.zeros((3, 4), "S2"))),
    "features-nan": _copy(_value("features", 0, np.nan)),
    "features-flat": _copy(_put("features", np.zeros(3, "f2"))),
    "features-words": _copy(_put("features", np.zeros((3, 3), "S2"))),
    "features-short": _copy(_put("features", np.zeros((1, 3), "f2"))),
    "checksums-short": _copy(_put("checksums", np.zeros(1, "u4"))),
    "provenance-number": _copy(_put("provenance", 3)),
    "provenance-list": _copy(_put("provenance", b"[1]")),
    "provenance-cut": _copy(_put("provenance", b'{"a":')),
    "provenance-deep": _copy(_put("provenance", b"[" * 20_000 + b"]" * 20_000)),
}
MAY_BE_SOUND = {"flip-40", "flip-middle", "flip-end", "ids-twice", "cut-end"}

BOXES: dict[str, str | Callable[[Path, Path], None]] = {
    "empty": "",
    "list": "[1]",
    "nan": '{"a": [[NaN, 0, 1, 1]]}',
    "coco-nan": json.dumps(
        {
            "images": [{"id": 1, "file_name": "a.png", "width": 9, "height": 9}],
            "categories": [{"id": 1, "name": "x"}],
            "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [float("nan"), 0, 1, 1]}],
        }
    ),
    "coco-huge": json.dumps(
        {
            "images": [{"id": 1, "file_name": "a.png", "width": 9, "height": 9}],
            "categories": [{"id": 1, "name": "x"}],
            "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 1e300, 1]}],
        }
    ),
    "deep": "[" * 50_000,
    "integer": '{"a": [[' + "7" * 5000 + ", 0, 1, 1]]}",
}


def _npz(value: Any) -> Callable[[Path, Path], None]:
    def make(path: Path, valid: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, **{"000000000001": np.asarray(value)})

    return make


ARRAYS = {
    "nan": _npz([[np.nan, 0, 1, 1]]),
    "infinite": _npz([[0, 0, np.inf, 1]]),
    "flat": _npz([1.0, 2.0]),
    "words": _npz([["a", "b", "c", "d"]]),
    "negative": _npz([[5, 5, 1, 1]]),
}


def trials() -> Iterator[Trial]:
    """Every bad store and box file."""
    for number, (name, content) in enumerate(CHANGES.items()):
        codes = (0, 5) if name in MAY_BE_SOUND else (5,)
        often = number % 4 == 0 or name in ("no-sets", "no-features", "no-boxes", "ids-numbers", "features-loop")
        words = ("features", "verify", "s.h5")
        yield Trial("store", f"verify-{name}", words, {"s.h5": content}, codes, quick=often, verdict=True)
        yield Trial("store", f"info-{name}", ("features", "info", "s.h5"), {"s.h5": content}, (0, 5))
    extract = (
        "stages: {regions: {kind: extract, root: {valid}/runs/valid/world/world, batch_size: 2, "
        "extractor: {name: backbone, arch: tiny-conv, short: 0, resolution: 1, boxes: given}, "
        "data: {name: coco-instances, split: train}, boxes: BOXES}}"
    )
    quick = ("coco-huge.json", "coco-nan.json", "nan.npz")
    for suffix, table in ((".json", BOXES), (".npz", ARRAYS)):
        for name, content in table.items():
            file = f"boxes{suffix}"

            def recipe(path: Path, valid: Path, file: str = file) -> None:
                text = extract.replace("{valid}", str(valid)).replace("BOXES", str(path.parent / file))
                path.write_text(text)

            alone = name in ("nan", "coco-nan", "infinite")  # these once ended the process itself
            files: dict[str, Content] = {"r.yaml": recipe, file: content}
            words = ("run", "r.yaml", "--quiet", "--output", "out")
            yield Trial(
                "store", f"boxes-{name}{suffix}", words, files, (5,), alone=alone, quick=f"{name}{suffix}" in quick
            )
