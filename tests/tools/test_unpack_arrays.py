"""Pictures inside arrays become PNG files with the same pixels, whatever the layout of the arrays."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.data.arrays import array_tables
from vlcli.errors import DataError
from vlcli.starter.look import look, plan_for
from vlcli.starter.machine import Machine
from vlcli.tools.unpacking import unpack

Expected = dict[str, tuple[np.ndarray, dict[str, list[Any]]]]
KINDS = ["plane", "car", "bird"]
PARTS = (("train", 60), ("test", 12))


def pixels(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(count + sum(shape)).integers(0, 256, (count, *shape), dtype=np.uint8)


def numbers(count: int) -> list[int]:
    return [n % 3 for n in range(count)]


def planes(pictures: np.ndarray) -> np.ndarray:
    """Every picture as a row: all of red, all of green, all of blue."""
    return np.ascontiguousarray(pictures.transpose(0, 3, 1, 2)).reshape(len(pictures), -1)


def cifar_10(root: Path) -> Expected:
    expected: Expected = {}
    for part, count in PARTS:
        pictures, labels = pixels(count, 32, 32, 3), numbers(count)
        rows = np.concatenate([np.array(labels, np.uint8)[:, None], planes(pictures)], 1)
        files = {"data_batch_1.bin": rows[:20], "data_batch_2.bin": rows[20:]} if part == "train" else {}
        for name, some in (files or {"test_batch.bin": rows}).items():
            (root / name).write_bytes(some.tobytes())
        expected[part] = pictures, {"label": [KINDS[n] for n in labels]}
    (root / "batches.meta.txt").write_text("\n".join(KINDS) + "\n\n")
    return expected


def cifar_10_pickled(root: Path) -> Expected:
    expected: Expected = {}
    for part, count in PARTS:
        pictures, labels = pixels(count, 32, 32, 3), numbers(count)
        content = {"batch_label": "batch", "labels": labels, "data": planes(pictures), "filenames": ["a.png"] * count}
        name = "data_batch_1" if part == "train" else "test_batch"
        (root / name).write_bytes(pickle.dumps(content, 2))
        expected[part] = pictures, {"label": [KINDS[n] for n in labels]}
    (root / "batches.meta").write_bytes(pickle.dumps({"num_vis": 3072, "label_names": KINDS}, 2))
    return expected


def cifar_100(root: Path) -> Expected:
    expected: Expected = {}
    for part, count in PARTS:
        pictures, labels = pixels(count, 32, 32, 3), np.array(numbers(count), np.uint8)
        rows = np.concatenate([(labels > 1)[:, None], labels[:, None], planes(pictures)], 1).astype(np.uint8)
        (root / f"{part}.bin").write_bytes(rows.tobytes())
        coarse = [["vehicle", "animal"][int(n > 1)] for n in labels]
        expected[part] = pictures, {"label": [KINDS[n] for n in labels], "coarse_label": coarse}
    (root / "fine_label_names.txt").write_text("\n".join(KINDS) + "\n")
    (root / "coarse_label_names.txt").write_text("vehicle\nanimal\n")
    return expected


def mnist(root: Path) -> Expected:
    expected: Expected = {}
    for part, count in (("train", 60), ("t10k", 12)):
        pictures, labels = pixels(count, 28, 28), numbers(count)
        for kind, magic, content in (("images-idx3", 3, pictures), ("labels-idx1", 1, np.array(labels, np.uint8))):
            head = struct.pack(f">BBBB{magic}I", 0, 0, 8, magic, *content.shape)
            (root / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + content.tobytes()))
        expected[part] = pictures, {"label": labels}
    return expected


def medmnist(root: Path) -> Expected:
    expected: Expected = {}
    arrays = {}
    for part, count in (*PARTS, ("val", 5)):
        pictures, labels = pixels(count, 28, 28, 3), numbers(count)
        arrays |= {f"{part}_images": pictures, f"{part}_labels": np.array(labels)[:, None]}
        expected[part] = pictures, {"label": labels}
    np.savez_compressed(root / "bloodmnist.npz", **arrays)
    return expected


def several_classes(root: Path) -> Expected:
    expected: Expected = {}
    arrays = {}
    for part, count in PARTS:
        pictures, flags = pixels(count, 28, 28), np.array([[n % 2, n % 3 == 0] for n in range(count)], np.uint8)
        arrays |= {f"{part}_images": pictures, f"{part}_labels": flags}
        expected[part] = pictures, {"labels": [[str(k) for k in (0, 1) if row[k]] for row in flags]}
    np.savez(root / "chestmnist.npz", **arrays)
    return expected


def keras(root: Path) -> Expected:
    arrays = {f"{role}_{part}": value for part, count in PARTS for role, value in _pair(count, "x", "y").items()}
    np.savez(root / "mnist.npz", **arrays)
    return {part: (pixels(count, 28, 28), {"label": numbers(count)}) for part, count in PARTS}


def _pair(count: int, pictures: str, labels: str) -> dict[str, np.ndarray]:
    return {pictures: pixels(count, 28, 28), labels: np.array(numbers(count), np.uint8)}


def kmnist(root: Path) -> Expected:
    for part, count in PARTS:
        for kind, array in _pair(count, "imgs", "labels").items():
            np.savez(root / f"kmnist-{part}-{kind}.npz", array)
    return {f"kmnist-{part}": (pixels(count, 28, 28), {"label": numbers(count)}) for part, count in PARTS}


def plain_arrays(root: Path) -> Expected:
    for part, count in PARTS:
        np.save(root / f"X_{part}.npy", pixels(count, 3, 20, 20).astype(np.int64))
        np.save(root / f"y_{part}.npy", np.eye(3)[numbers(count)])
    return {part: (pixels(count, 3, 20, 20).transpose(0, 2, 3, 1), {"label": numbers(count)}) for part, count in PARTS}


def stl_10(root: Path) -> Expected:
    expected: Expected = {}
    for part, count in PARTS:
        pictures, labels = pixels(count, 96, 96, 3), numbers(count)
        (root / f"{part}_X.bin").write_bytes(pictures.transpose(0, 3, 2, 1).tobytes())
        (root / f"{part}_y.bin").write_bytes(bytes(n + 1 for n in labels))
        expected[part] = pictures, {"label": [KINDS[n] for n in labels]}
    (root / "class_names.txt").write_text("\n".join(KINDS) + "\n")
    return expected


def svhn(root: Path) -> Expected:
    for part, count in PARTS:
        rows = {"X": pixels(count, 32, 32, 3).transpose(1, 2, 3, 0), "y": np.array(numbers(count))[:, None] + 1}
        savemat(root / f"{part}_32x32.mat", rows)
    labels = {part: [n + 1 for n in numbers(count)] for part, count in PARTS}
    return {f"{part}-32x32": (pixels(count, 32, 32, 3), {"label": labels[part]}) for part, count in PARTS}


LAYOUTS: list[Callable[[Path], Expected]] = [
    *(
        cifar_10,
        cifar_10_pickled,
        cifar_100,
        mnist,
        medmnist,
        several_classes,
        keras,
        kmnist,
        plain_arrays,
        stl_10,
        svhn,
    )
]


@pytest.fixture(params=LAYOUTS, ids=lambda make: make.__name__)
def layout(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Expected]:
    (tmp_path / "data").mkdir()
    return tmp_path / "data", request.param(tmp_path / "data")


def test_every_pixel_and_every_label_comes_out(layout: tuple[Path, Expected]) -> None:
    source, expected = layout
    out = source.parent / "out"
    unpacked = unpack(source, out)
    assert unpacked.tables == {part: len(pictures) for part, (pictures, _) in expected.items()}
    for part, (pictures, columns) in expected.items():
        rows = [json.loads(line) for line in (out / f"{part}.jsonl").read_text().splitlines()]
        written = [np.asarray(Image.open(out / "images" / row["image"])) for row in rows]
        assert np.array_equal(written, pictures)
        assert {name: [row[name] for row in rows] for name in rows[0] if name != "image"} == columns


def test_init_names_the_command_and_reads_what_it_writes(layout: tuple[Path, Expected], monkeypatch: Any) -> None:
    source, expected = layout
    monkeypatch.chdir(source.parent)
    ended = CliRunner().invoke(app, ["init", "data"])
    assert "vlcli data unpack data --out data-unpacked, then vlcli init data-unpacked" in ended.stderr
    unpack(source, source.parent / "data-unpacked")
    plan = plan_for(look(source.parent / "data-unpacked"), None, Machine(2, ""))
    several = any("labels" in columns for _, columns in expected.values())
    assert plan.goal == ("multi-label" if several else "image-classification")
    assert {*plan.source.parts} >= {"train", "test"}


@pytest.mark.parametrize("damage", ["cut", "one missing", "objects"])
def test_damaged_arrays_end_in_words(layout: tuple[Path, Expected], damage: str) -> None:
    source, _ = layout
    files = sorted(path for path in source.iterdir() if "meta" not in path.name and "names" not in path.name)
    if damage == "cut":
        files[0].write_bytes(files[0].read_bytes()[: files[0].stat().st_size // 2 - 7])
    elif damage == "one missing":
        np.save(source / "labels_train.npy", np.arange(7))
    else:
        np.savez(source / "train_images.npz", images=np.array([{}, open], dtype=object))
    with pytest.raises(DataError) as met:
        unpack(source, source.parent / "out")
    assert str(source) in str(met.value.where)
    assert not (source.parent / "out").exists()


def test_a_damaged_matlab_file_and_a_number_beside_arrays(tmp_path: Path) -> None:
    (tmp_path / "train.mat").write_bytes(b"MATLAB 5.0")
    with pytest.raises(DataError, match="cannot be read"):
        list(array_tables(tmp_path))
    (tmp_path / "train.mat").unlink()
    np.savez(tmp_path / "train.npz", x=pixels(2, 8, 8), y=np.arange(2), data=np.int64(2))
    [(name, table)] = array_tables(tmp_path)
    assert (name, table.pictures.shape, table.columns) == ("train", (2, 8, 8), {"label": [0, 1]})
