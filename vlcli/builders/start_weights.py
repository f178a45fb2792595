"""Loads the weights that a training starts from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from vlcli.engine.bundle import find_bundle, read_weights, verified
from vlcli.engine.training_module import TrainingModule
from vlcli.engine.weights import LoadReport, WeightLoader
from vlcli.errors import DataError

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
        folder = find_bundle(path)
        if folder is not None:
            loader.add(read_weights(folder), str(path), ours=True)
        else:
            loader.add_file(verified(_weight_file(path)), state_dict, rename)
    return loader.finish()


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
