"""Finds a trained model by what was typed, and loads it."""

from __future__ import annotations

from pathlib import Path

from vlcli.engine.bundle import WEIGHTS, Bundle, find_bundle, load_bundle, read_bundle
from vlcli.engine.training_module import build_training_module
from vlcli.engine.weights import load_exactly, read_tensors
from vlcli.errors import DataError
from vlcli.recipe.stage_record import earlier, made_in, similar

RUNS = "runs"


def find_model(name: str | Path) -> Path:
    """Return the folder of a model: as named, or under ``runs/``; of a stage of another run, the folder in that run.

    Raises:
        DataError: there is none.
    """
    if (path := earlier(Path(RUNS), str(name))) is not None:
        return made_in(path)
    expected = f"a folder, or RECIPE/STAGE under {RUNS}/"
    hint = similar(Path(RUNS), str(name)) or "train it: vlcli run RECIPE"
    raise DataError("There is no such model.", got=str(name), expected=expected, hint=hint)


def load_any(path: Path, device: str) -> Bundle:
    """Load a bundle, or the weights of a checkpoint in the bundle of its stage."""
    if find_bundle(path) is not None or not (path / WEIGHTS).is_file():
        return load_bundle(path, device)
    bundle = read_bundle(path.parent.parent)
    module = build_training_module(bundle.model_spec, bundle.objectives_specs, bundle.data_spec)
    load_exactly(module, read_tensors(path / WEIGHTS), str(path / WEIGHTS))
    bundle.module, bundle.folder = module.to(device).eval(), path
    return bundle
