"""Recognises the layout of a file by names and shapes, without unpickling anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from vlcli.checkpoints.layout import Entry, Tensors
from vlcli.checkpoints.load import Checkpoint, of_layouts
from vlcli.errors import DataError

_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}
_TYPES |= {"I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}


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
        return len(self.other_shape) + len(self.missing) + len(self.further)


def read_tensors(path: Path) -> Tensors:
    """Reads names, shapes and types of a file's tensors; of safetensors only the header.

    Raises:
        DataError: missing, damaged, or more than tensors (such a file is never unpickled).
    """
    if path.suffix != ".safetensors":
        from vlcli.nn.weights import read_weights

        weights = read_weights(path)
        return {name: Entry(tuple(v.shape), str(v.dtype).removeprefix("torch.")) for name, v in weights.items()}
    try:
        with safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            return {n: Entry(tuple(one.get_shape()), _TYPES.get(one.get_dtype(), "uint8")) for n, one in slices.items()}
    except (OSError, SafetensorError) as error:
        what, expected = "The weights cannot be read.", "a safetensors file"
        raise DataError(what, where=str(path), got=str(error), expected=expected) from None


def plain(tensors: Mapping[str, Entry]) -> Tensors:
    """Removes the prefix ``module.`` of ``DataParallel`` if all names have it."""
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
