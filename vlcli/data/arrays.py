"""Pictures and labels inside arrays: MNIST's idx files, NumPy's, MATLAB's, and the files of CIFAR and STL-10.

Arrays belong together by their names (``train_images`` and ``train_labels``, ``x_test`` and ``y_test``); the rest of a
name is the table's.
"""

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlcli.data.files import read_content, read_text
from vlcli.data.plain_pickle import load_plain
from vlcli.data.sheets import check_unpacked
from vlcli.errors import DataError, VlcliError
from vlcli.files import walk

Array = NDArray[Any]
_PICTURES = {"images", "image", "imgs", "img", "x", "data"}
_LABELS = {"labels", "label", "targets", "target", "y"}
# Words of names that say nothing about the table.
_IDLE = re.compile(r"idx\d?|ubyte|arr|batch|fine|coarse|\d+")
# Files of the classes' names beside CIFAR's and STL-10's arrays.
_META = (
    "batches.meta.txt",
    "fine_label_names.txt",
    "coarse_label_names.txt",
    "class_names.txt",
    "batches.meta",
    "meta",
)


class ArrayTable(NamedTuple):
    """Pictures of one part, (N, height, width) or (N, height, width, 3 or 4) bytes, and by column a value for each."""

    pictures: Array
    columns: dict[str, list[Any]]


def array_files(source: Path) -> list[Path]:
    """Return the files below ``source``, or itself, that hold arrays by their names."""
    files = [source] if source.is_file() else [path / name for path, names in walk(source) for name in names]
    return [file for file in files if _opener(file) is not None]


def array_tables(source: Path) -> Iterator[tuple[str, ArrayTable]]:
    """Yield the tables in the arrays of a file or folder, by name; a table of several files comes in pieces.

    Raises DataError: a file is damaged, arrays are no pictures, or pictures and labels differ in number.
    """
    files = array_files(source)
    pieces: dict[tuple[Path, str], dict[str, list[Array]]] = {}
    for file in files:
        for key, array in _opened(file).items():
            if not array.ndim:
                continue  # a number beside the arrays
            role, table = _meaning(key, file)
            pieces.setdefault((file.parent, table), {}).setdefault(role, []).append(array)
    several = len({file.parent for file in files}) > 1
    for (folder, table), roles in pieces.items():
        names, pictures = _class_names(folder), roles.pop("image", [])
        where = f"{folder}: {table}"
        if not pictures or any(len(some) != len(pictures) for some in roles.values()):
            got = ", ".join(f"{len(some)} of {role}" for role, some in {"image": pictures, **roles}.items())
            raise DataError("Arrays of pictures and of labels do not belong together.", where=where, got=got)
        for number, one in enumerate(pictures):
            columns = {role: some[number] for role, some in roles.items()}
            path = "-".join(folder.relative_to(source).parts) if several else ""
            yield f"{path}-{table}" if path else table, _table(one, columns, names, where)


def _words(name: str) -> list[str]:
    return re.findall("[a-z0-9]+", name.lower())


def _meaning(key: str, file: Path) -> tuple[str, str]:
    stem = file.name.lower().removesuffix(".gz").removesuffix(file.suffix.lower())
    words = next((some for some in (_words(key), _words(stem)) if {*some} & (_PICTURES | _LABELS)), [])
    role = ("coarse_" if "coarse" in words else "") + ("label" if _LABELS & {*words} else "image")
    kept = ([w for w in _words(name) if not (w in _PICTURES | _LABELS or _IDLE.fullmatch(w))] for name in (key, stem))
    return role, "-".join(next(filter(None, kept), [])) or "train"


def _table(pictures: Array, columns: dict[str, Array], names: dict[str, list[str]], where: str) -> ArrayTable:
    counts = {role: len(array) for role, array in columns.items()}
    pictures = _pictures(pictures, next(iter(counts.values()), len(pictures)), where)
    if not set(counts.values()) <= {len(pictures)}:
        got = f"{len(pictures):,} pictures, {counts}"
        raise DataError("Pictures and labels differ in number.", where=where, got=got)
    return ArrayTable(pictures, dict(_values(role, one, names.get(role, []), where) for role, one in columns.items()))


def _pictures(array: Array, count: int, where: str) -> Array:
    """Return an array of pictures with the axes N, height, width and colours; ``count`` pictures have labels."""
    shape = array.shape
    if array.ndim in (3, 4) and len(array) != count == shape[-1]:  # MATLAB's
        array = np.moveaxis(array, -1, 0)
    if array.ndim == 2 and (side := math.isqrt(shape[1] // 3)) ** 2 * 3 == shape[1]:
        array = array.reshape(-1, 3, side, side)
    elif array.ndim == 2 and (side := math.isqrt(shape[1])) ** 2 == shape[1]:
        array = array.reshape(-1, side, side)
    if array.ndim == 4 and array.shape[-1] not in (1, 3, 4) and array.shape[1] in (1, 3, 4):
        array = np.moveaxis(array, 1, -1)
    if array.ndim == 4 and array.shape[-1] == 1:
        array = array[..., 0]
    fits = array.ndim == 3 or (array.ndim == 4 and array.shape[-1] in (3, 4))
    if not fits or not array.size or array.dtype.kind not in "iu" or array.min() < 0 or array.max() > 255:
        expected = "whole numbers from 0 to 255: pictures, height, width and perhaps colours"
        raise DataError("An array holds no pictures.", where=where, got=f"{array.dtype} {shape}", expected=expected)
    return array.astype(np.uint8, copy=False)


def _values(role: str, array: Array, names: list[str], where: str) -> tuple[str, list[Any]]:
    """Return a column: a class for each picture, by name where names are known, or a list of classes."""
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    flags = array.ndim == 2 and set(np.unique(array)) <= {0, 1}
    if array.ndim != 1 and not flags:
        raise DataError("An array holds no labels.", where=where, got=f"{array.dtype} {array.shape}")
    if flags and not (array.sum(1) == 1).all():
        return f"{role}s", [[names[n] if n < len(names) else str(n) for n in np.flatnonzero(row)] for row in array]
    numbers = array.argmax(1).tolist() if flags else array.tolist()
    first = int(bool(names) and max(numbers, default=0) == len(names))
    known = names and all(isinstance(n, int) and 0 <= n - first < len(names) for n in numbers)
    return role, [names[n - first] for n in numbers] if known else numbers


def _class_names(folder: Path) -> dict[str, list[str]]:
    names = {}
    for file in filter(Path.is_file, (folder / name for name in _META)):
        lists = {file.stem: read_text(file).split("\n")} if file.suffix == ".txt" else load_plain(file)
        for key, some in lists.items() if isinstance(lists, dict) else ():
            if isinstance(some, list) and re.search(r"name|meta", key):
                role = "coarse_label" if "coarse" in key else "label"
                names[role] = [str(one).strip() for one in some if str(one).strip()]
    return names


def _opened(file: Path) -> dict[str, Array]:
    opener = _opener(file)
    assert opener is not None
    try:
        return opener(file)
    except VlcliError:
        raise
    except Exception as error:  # each format has errors of its own
        got, hint = f"{type(error).__name__}: {str(error)[:120]}", "is it complete?"
        raise DataError("The file of arrays cannot be read.", where=str(file), got=got, hint=hint) from None


def _numpy(file: Path) -> dict[str, Array]:
    if file.suffix.lower() == ".npy":
        return {"": np.load(file, mmap_mode="r", allow_pickle=False)}
    check_unpacked(file)
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def _idx(file: Path) -> dict[str, Array]:
    content = read_content(file)
    if content[:3] != b"\0\0\x08" or len(content) < 4:
        raise ValueError("no idx file of bytes")
    shape = np.frombuffer(content, ">u4", content[3], 4)
    return {"": np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(*map(int, shape))}


def _matlab(file: Path) -> dict[str, Array]:
    from scipy.io import loadmat

    arrays = loadmat(file).items()
    return {name: array for name, array in arrays if isinstance(array, np.ndarray) and array.dtype.kind in "biuf"}


def _pickled(file: Path) -> dict[str, Array]:
    content = load_plain(file, arrays=True)
    if not isinstance(content, dict) or not isinstance(content.get("data"), np.ndarray):
        raise ValueError("no dictionary with an array data")
    return {key: np.asarray(value) for key, value in content.items() if key == "data" or key.endswith("labels")}


def _cifar(labels: tuple[str, ...], file: Path) -> dict[str, Array]:
    rows = np.fromfile(file, np.uint8).reshape(-1, len(labels) + 3 * 32 * 32)
    return {"images": rows[:, len(labels) :]} | {label: rows[:, number] for number, label in enumerate(labels)}


_OPENERS: dict[str, Callable[[Path], dict[str, Array]]] = {
    r".+\.(npz|npy)": _numpy,
    r".+ubyte(\.gz)?": _idx,
    r".+\.mat": _matlab,
    r"data_batch_\d+|test_batch|train|test": _pickled,
    r"(data_batch_\d+|test_batch)\.bin": partial(_cifar, ("labels",)),
    r"(train|test)\.bin": partial(_cifar, ("coarse_labels", "fine_labels")),
    r"(train|test|unlabeled)_x\.bin": lambda file: {
        "": np.fromfile(file, np.uint8).reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1)
    },
    r"(train|test)_y\.bin": lambda file: {"": np.fromfile(file, np.uint8)},
}


def _opener(file: Path) -> Callable[[Path], dict[str, Array]] | None:
    return next((one for name, one in _OPENERS.items() if re.fullmatch(name, file.name.lower())), None)
