"""Folders of transformers: where they lie, what their configuration says, and their weights without surprises."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from vlcli.errors import DataError, UsageError
from vlcli.files import cached_repository
from vlcli.nn import file_sha256, quiet_transformers

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""Files of which a folder with weights holds one."""
SETTINGS = ("config.json", "preprocessor_config.json", "processor_config.json")
"""Files beside the weights that decide features."""
HELP = "a folder that save_pretrained wrote, or a repository of the Hugging Face hub: docs/backbones.md"


def locate(weights: str | None, hub: str | None) -> Path:
    """Return the folder that an extractor's options ``weights`` and ``hub`` name; nothing is downloaded.

    Args:
        hub: a repository name of the Hugging Face hub, already in its cache.

    Raises:
        UsageError: none of them is given, or both are.
        DataError: there is no such folder, or the cache does not hold the repository.
    """
    if (weights is None) == (hub is None):
        got = "neither weights nor hub" if hub is None else f"weights: {weights} and hub: {hub}"
        expected = "weights: FOLDER (under the data root), or hub: OWNER/NAME (in the cache)"
        raise UsageError("This extractor takes its model from one place.", got=got, expected=expected)
    if hub is not None:
        return _cached(hub)
    path = Path(str(weights))
    folder = path.parent if path.is_file() else path
    if not folder.is_dir():
        expected = "a folder with config.json and model.safetensors"
        hint = "a repository in the cache of the Hugging Face hub is named by hub: OWNER/NAME"
        raise DataError("There is no such folder of transformers.", where=str(folder), expected=expected, hint=hint)
    return folder


def _cached(name: str) -> Path:
    from huggingface_hub import constants

    if (folder := cached_repository(name)) is not None:
        return folder
    raise DataError(
        f"The cache of the Hugging Face hub does not hold {name!r}, and vlcli downloads nothing.",
        where=constants.HF_HUB_CACHE,
        got="no snapshot of it",
        expected=f"a folder models--{name.replace('/', '--')} with a snapshot",
        hint=f"hf download {name}; or copy the repository and name its folder: weights: FOLDER",
    )


def model_type(folder: Path) -> str:
    """Return ``model_type`` of ``config.json``."""
    file = folder / "config.json"
    try:
        kind = json.loads(file.read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        what, expected = "The folder has no configuration of transformers.", "config.json as save_pretrained writes it"
        got = "no such file" if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}"
        raise DataError(what, where=str(file), got=got, expected=expected) from None
    if not isinstance(kind, str):
        raise DataError("The configuration does not say what model it is of.", where=str(file), expected="model_type")
    return kind


def digest(folder: Path) -> str:
    """Return the SHA-256 over the weights and settings of a folder: the names of the files and the SHA-256 of each."""
    patterns = (*SETTINGS, "*.safetensors", "pytorch_model*.bin")
    names = sorted(path.name for path in folder.iterdir() if any(fnmatch(path.name, one) for one in patterns))
    return hashlib.sha256("".join(f"{name} {file_sha256(folder / name)}\n" for name in names).encode()).hexdigest()


def load_model(target: Any, folder: Path, *, may_miss: Sequence[str] = (), **options: Any) -> Any:
    """Load a model of transformers with the folder's weights, in float32, without gradients.

    Args:
        may_miss: patterns of weights that features do not need and the folder may lack.

    Raises:
        DataError: the folder has no weights, or they are not those of the model that its configuration describes.
    """
    if not any((folder / name).is_file() for name in WEIGHTS):
        got = ", ".join(sorted(path.name for path in folder.iterdir())[:6]) or "an empty folder"
        expected, hint = f"one of {', '.join(WEIGHTS)}", "save_pretrained writes them beside config.json"
        raise DataError("The folder has no weights.", where=str(folder), got=got, expected=expected, hint=hint)
    try:
        with torch.random.fork_rng(devices=[]), quiet_transformers():
            model, report = target.from_pretrained(str(folder), **LOADING, **options)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise _misfit(folder, str(error)) from None
    others = [f"{name} {[*have]} where {[*want]} is wanted" for name, have, want in report["mismatched_keys"]]
    missing = [name for name in report["missing_keys"] if not any(fnmatch(name, one) for one in may_miss)]
    for what, names in (("of another size", sorted(others)), ("missing", sorted(missing))):
        if names:
            raise _misfit(folder, f"{len(names)} tensors are {what}: {'; '.join(names[:3])}")
    return model.eval().requires_grad_(False)


LOADING = {
    "output_loading_info": True,
    "local_files_only": True,
    "ignore_mismatched_sizes": True,  # they are refused, all of them named, by load_model
    "dtype": torch.float32,
}


def _misfit(folder: Path, text: str) -> DataError:
    what = "The weights do not fit the model that the configuration describes."
    got = next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]
    expected = "config.json and weights of one save_pretrained"
    hint = "compare the sizes in config.json with those of the weights"
    return DataError(what, where=str(folder), got=got, expected=expected, hint=hint)


def image_processor(folder: Path) -> Any:
    """Load the folder's image processor."""
    from transformers import AutoImageProcessor

    expected = "preprocessor_config.json or processor_config.json"
    hint = "copy preprocessor_config.json of the model's repository into the folder"
    return _loaded(AutoImageProcessor, folder, "The folder has no image processor.", expected, hint)


def tokenizer(folder: Path) -> Any:
    """Load the folder's tokenizer."""
    from transformers import AutoTokenizer

    expected = "tokenizer.json, or vocab.txt, or vocab.json with merges.txt"
    return _loaded(AutoTokenizer, folder, "The folder has no tokenizer, and the model reads words.", expected, "")


def _loaded(target: Any, folder: Path, what: str, expected: str, hint: str) -> Any:
    try:
        return target.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        got = str(error).splitlines()[0][:200]
        raise DataError(what, where=str(folder), got=got, expected=expected, hint=hint) from None
