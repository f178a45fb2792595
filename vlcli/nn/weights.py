"""Read local weights safely and say exactly what of them went where."""

from __future__ import annotations

import fnmatch
import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from vlcli.errors import DataError

COUNTERS = "*num_batches_tracked"
"""Buffers of batch normalisation that inference never reads and many checkpoints lack."""


@dataclass(frozen=True)
class WeightsReport:
    """What loading did.

    Attributes:
        path: the file.
        sha256: hash of the file.
        matched: tensors loaded.
        left_over: tensors of the file that the model has no place for and that were declared unneeded.
    """

    path: str
    sha256: str
    matched: int
    left_over: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """One line."""
        rest = f", {len(self.left_over)} not needed ({', '.join(self.left_over[:3])})" if self.left_over else ""
        return f"{self.path}: {self.matched} tensors loaded{rest}; sha256 {self.sha256[:12]}"


_UNREADABLE = (
    SafetensorError,
    pickle.UnpicklingError,
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
    LookupError,  # bytes that are no pickle at all
)  # RecursionError is a RuntimeError


def file_sha256(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file or of a checkpoint that loads with ``weights_only``.

    A checkpoint may wrap its tensors under ``state_dict``, ``model`` or ``module``; a ``module.`` prefix common to
    all names is taken off.

    Raises:
        DataError: missing, damaged, or not tensors only.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("the weights do not exist", where=str(path), hint="check the path given as weights")
    try:
        content: Any = load_file(path) if path.suffix == ".safetensors" else _load_checkpoint(path)
    except _UNREADABLE as error:
        raise DataError(
            "the weights cannot be read",
            where=str(path),
            got=str(error).splitlines()[0] if str(error) else type(error).__name__,
            expected="a safetensors file, or a checkpoint of tensors only",
        ) from None
    for key in ("state_dict", "model", "module"):
        if isinstance(content.get(key), dict):
            content = content[key]
    tensors = {name: value for name, value in content.items() if isinstance(value, Tensor)}
    if odd := [name for name in tensors if not isinstance(name, str)]:
        got, expected = f"keys such as {odd[0]!r}", "tensors by name"
        raise DataError("the weights have no names", where=str(path), got=got, expected=expected)
    if tensors and all(name.startswith("module.") for name in tensors):
        tensors = {name.removeprefix("module."): value for name, value in tensors.items()}
    return tensors


def _load_checkpoint(path: Path) -> dict[str, Any]:
    content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__}")
    return content


def load_tensors(
    module: nn.Module, tensors: dict[str, Tensor], path: str | Path, unneeded: Sequence[str] = ()
) -> WeightsReport:
    """Load tensors into a module, completely.

    Args:
        module: where to; its own types are kept.
        tensors: by the module's names.
        path: the file they came from.
        unneeded: patterns of tensors in the file that may have no place (a classifier's).

    Raises:
        DataError: a tensor is missing, left over, or of another shape; all of them are named.
    """
    path = Path(path)
    own = module.state_dict()
    missing = [name for name in own if name not in tensors and not fnmatch.fnmatch(name, COUNTERS)]
    extra = [name for name in tensors if name not in own]
    left_over = [name for name in extra if any(fnmatch.fnmatch(name, pattern) for pattern in (*unneeded, COUNTERS))]
    unknown = [name for name in extra if name not in left_over]
    shapes = [
        f"{name} {tuple(tensors[name].shape)} for {tuple(own[name].shape)}"
        for name in own
        if name in tensors and tensors[name].shape != own[name].shape
    ]
    if missing or unknown or shapes:
        parts = {"missing": missing, "without a place": unknown, "of another shape": shapes}
        raise DataError(
            "the weights do not fit the network",
            where=str(path),
            got="; ".join(f"{len(names)} {what}: {', '.join(names[:5])}" for what, names in parts.items() if names),
            expected=f"{len(own)} tensors as in {next(iter(own), 'nothing')}",
            hint="check arch, layout and weights",
        )
    matched = {name: value for name, value in tensors.items() if name in own}
    module.load_state_dict(matched, strict=False)
    return WeightsReport(str(path), file_sha256(path), len(matched), left_over)
