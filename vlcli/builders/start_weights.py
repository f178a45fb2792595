"""Loads the weights that a training starts from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from torch import Tensor

from vlcli.engine.bundle import find_bundle, read_weights, verified
from vlcli.engine.training_module import TrainingModule
from vlcli.engine.weights import LoadReport, WeightLoader
from vlcli.errors import DataError
from vlcli.nn.weights import read_states

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")


def load_sources(
    module: TrainingModule,
    sources: list[Path],
    allow_unmatched: list[str],
    state_dict: str | None = None,
    rename: Mapping[str, str] = MappingProxyType({}),
) -> LoadReport | None:
    """Loads bundles, checkpoints of other tools, or folders with one of these; returns None if there is no source.

    The last two arguments are those of :meth:`WeightLoader.add_file`.

    Raises:
        DataError: there are no weights, or the backbone is not complete.
    """
    if not sources:
        return None
    loader = WeightLoader(module, allow_unmatched)
    for path in sources:
        file, states = read_source(path)
        if file is None:
            loader.add(states[""], str(path), ours=True)
        else:
            loader.add_file(file, states, state_dict, rename)
    return loader.finish()


def read_source(path: Path) -> tuple[Path | None, dict[str, dict[str, Tensor]]]:
    """Reads the weights of a bundle (no file; its state under ``""``) or of another tool's file or folder, by key.

    Raises:
        DataError: there are none, or they are damaged.
    """
    if (folder := find_bundle(path)) is not None:
        return None, {"": read_weights(folder)}
    file = verified(_weight_file(path))
    return file, read_states(file)


def _weight_file(path: Path) -> Path:
    if path.is_file():
        return path
    files = [path / name for name in WEIGHT_FILES if (path / name).is_file()]
    if not files:
        raise DataError(
            "There are no weights here.",
            where=str(path),
            expected=f"a stage of this recipe, a model folder, {' or '.join(WEIGHT_FILES)}, or a file",
        )
    return files[0]
