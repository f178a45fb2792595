"""Recognises the layout of a file by names and shapes, without unpickling anything."""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vlcli.checkpoints.layout import Entry, Tensors
from vlcli.checkpoints.load import Checkpoint, of_layouts
from vlcli.errors import DataError

_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}
_TYPES |= {"I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}
MOST_HEADER = 100_000_000
"""The longest header, as in safetensors."""


@dataclass(frozen=True)
class Match:
    """Names of a file compared with those of a layout.

    Attributes:
        same: names with equal shapes.
        other_shape: names with both shapes, the file's first.
        missing: names of the layout that the file lacks.
        further: names of the file that the layout lacks.
    """

    checkpoint: Checkpoint
    same: tuple[str, ...]
    other_shape: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    missing: tuple[str, ...]
    further: tuple[str, ...]

    @property
    def faults(self) -> int:
        """Number of names that differ."""
        return len(self.other_shape) + len(self.missing) + len(self.further)


def read_tensors(path: Path) -> Tensors:
    """Reads names, shapes and types of a file's tensors; of safetensors only the header.

    Raises:
        DataError: missing, damaged, or more than tensors (such a file is never unpickled).
    """
    if path.suffix == ".safetensors":
        return _header(path)
    from vlcli.nn.weights import read_weights

    return {name: Entry(tuple(v.shape), str(v.dtype).removeprefix("torch.")) for name, v in read_weights(path).items()}


def _header(path: Path) -> Tensors:
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > MOST_HEADER:
                raise ValueError(f"a header of {length:,} bytes")
            rows = json.loads(file.read(length))
        rows.pop("__metadata__", None)
        return {n: Entry(tuple(map(int, row["shape"])), _TYPES.get(row["dtype"], "uint8")) for n, row in rows.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError) as error:
        got = str(error).split("\n")[0] or type(error).__name__
        raise DataError(
            "The weights cannot be read.", where=str(path), got=got, expected="a safetensors file"
        ) from None


def plain(tensors: Mapping[str, Entry]) -> Tensors:
    """Removes the ``module.`` of ``DataParallel`` if all names have it."""
    wrapped = bool(tensors) and all(name.startswith("module.") for name in tensors)
    return {name.removeprefix("module.") if wrapped else name: entry for name, entry in tensors.items()}


def compare(tensors: Tensors, checkpoint: Checkpoint) -> Match:
    """Compares a file's tensors with those of a layout."""
    layout, file = plain(checkpoint.tensors), plain(tensors)
    both = [name for name in file if name in layout]
    other = {n: (file[n].shape, layout[n].shape) for n in both if file[n].shape != layout[n].shape}
    same = tuple(name for name in both if name not in other)
    missing = tuple(name for name in layout if name not in file)
    return Match(checkpoint, same, other, missing, tuple(name for name in file if name not in layout))


def matches(tensors: Tensors) -> list[Match]:
    """Returns the registered layouts that share names with a file, the nearest first."""
    every = [compare(tensors, one) for one in of_layouts()]
    return sorted((one for one in every if one.same or one.other_shape), key=lambda one: (one.faults, -len(one.same)))
