"""Which layout a file has: by names and shapes alone, without unpickling anything."""

from __future__ import annotations

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
"""Bytes of a header; safetensors itself reads no longer ones."""


@dataclass(frozen=True)
class Match:
    """How well a file agrees with a layout.

    Attributes:
        checkpoint: of that layout.
        same: names with equal shapes.
        other_shape: names with both shapes, the file's first.
        missing: names of the layout that the file lacks.
        further: names of the file that the layout has not.
    """

    checkpoint: Checkpoint
    same: tuple[str, ...]
    other_shape: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    missing: tuple[str, ...]
    further: tuple[str, ...]

    @property
    def faults(self) -> int:
        """In how many names they differ."""
        return len(self.other_shape) + len(self.missing) + len(self.further)


def read_tensors(path: Path) -> Tensors:
    """Names, shapes and types of a file's tensors; of safetensors only the header is read.

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
            found = json.loads(file.read(length))
        found.pop("__metadata__", None)
        return {n: Entry(tuple(map(int, one["shape"])), _TYPES.get(one["dtype"], "uint8")) for n, one in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError) as error:
        got = str(error).split("\n")[0] or type(error).__name__
        raise DataError(
            "The weights cannot be read.", where=str(path), got=got, expected="a safetensors file"
        ) from None


def plain(tensors: Mapping[str, Entry]) -> Tensors:
    """Without the ``module.`` that several GPUs put before all names."""
    wrapped = bool(tensors) and all(name.startswith("module.") for name in tensors)
    return {name.removeprefix("module.") if wrapped else name: entry for name, entry in tensors.items()}


def compare(tensors: Tensors, checkpoint: Checkpoint) -> Match:
    """A file's tensors beside those of a layout."""
    own, theirs = plain(checkpoint.tensors), plain(tensors)
    both = [name for name in theirs if name in own]
    other = {n: (theirs[n].shape, own[n].shape) for n in both if theirs[n].shape != own[n].shape}
    same = tuple(name for name in both if name not in other)
    missing = tuple(name for name in own if name not in theirs)
    return Match(checkpoint, same, other, missing, tuple(name for name in theirs if name not in own))


def matches(tensors: Tensors) -> list[Match]:
    """The registered layouts that share names with a file, the nearest first."""
    found = [compare(tensors, one) for one in of_layouts()]
    return sorted((one for one in found if one.same or one.other_shape), key=lambda one: (one.faults, -len(one.same)))
