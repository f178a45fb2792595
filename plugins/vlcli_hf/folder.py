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
    """The folder that an extractor's options ``weights`` and ``hub`` name; nothing is downloaded.

    Args:
        weights: a local folder, or any file in it.
        hub: a repository name of the Hugging Face hub, already in its cache.

    Raises:
        UsageError: none of them is given, or both are.
        DataError: there is no such folder, or the cache does not hold the repository.
    """
    if (weights is None) == (hub is None):
        raise UsageError(
            "This extractor takes its model from one place.",
            got="neither weights nor hub" if hub is None else f"weights: {weights} and hub: {hub}",
            expected="weights: FOLDER (under the data root), or hub: OWNER/NAME (in the cache)",
        )
    if hub is not None:
        return _cached(hub)
    path = Path(str(weights))
    folder = path.parent if path.is_file() else path
    if not folder.is_dir():
        raise DataError(
            "There is no such folder of transformers.",
            where=str(folder),
            expected="a folder with config.json and model.safetensors",
            hint="a repository in the cache of the Hugging Face hub is named by hub: OWNER/NAME",
        )
    return folder


def _cached(name: str) -> Path:
    from huggingface_hub import constants

    found = cached_repository(name)
    if found is not None:
        return found
    raise DataError(
        f"The cache of the Hugging Face hub does not hold {name!r}, and vlcli downloads nothing.",
        where=constants.HF_HUB_CACHE,
        got="no snapshot of it",
        expected=f"a folder models--{name.replace('/', '--')} with a snapshot",
        hint=f"hf download {name}; or copy the repository and name its folder: weights: FOLDER",
    )


def model_type(folder: Path) -> str:
    """What ``config.json`` says of the kind of model.

    Raises:
        DataError: there is no configuration, or it names no kind.
    """
    file = folder / "config.json"
    try:
        kind = json.loads(file.read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(
            "The folder has no configuration of transformers.",
            where=str(file),
            got="no such file" if isinstance(error, FileNotFoundError) else f"{type(error).__name__}: {error}",
            expected="config.json as save_pretrained writes it",
        ) from None
    if not isinstance(kind, str):
        raise DataError("The configuration does not say what model it is of.", where=str(file), expected="model_type")
    return kind


def digest(folder: Path) -> str:
    """SHA-256 over the weights and settings of a folder: the names of the files and the SHA-256 of each."""
    names = sorted(path.name for path in folder.iterdir() if path.name in SETTINGS or _holds_weights(path.name))
    whole = hashlib.sha256()
    for name in names:
        whole.update(f"{name} {file_sha256(folder / name)}\n".encode())
    return whole.hexdigest()


def _holds_weights(name: str) -> bool:
    return fnmatch(name, "*.safetensors") or fnmatch(name, "pytorch_model*.bin")


def load_model(target: Any, folder: Path, *, may_miss: Sequence[str] = (), **options: Any) -> Any:
    """A model of transformers with the folder's weights, in float32, without gradients.

    Args:
        target: a class of transformers with ``from_pretrained``.
        folder: with ``config.json`` and weights.
        may_miss: patterns of weights that features do not need and the folder may lack.
        options: more for ``from_pretrained``.

    Raises:
        DataError: the folder has no weights, or they are not those of the model that its configuration describes.
    """
    check_weights(folder)
    try:
        with torch.random.fork_rng(devices=[]), quiet_transformers():
            model, report = target.from_pretrained(str(folder), **LOADING, **options)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise _misfit(folder, str(error)) from None
    others = [f"{name} {_plain(have)} where {_plain(want)} is wanted" for name, have, want in report["mismatched_keys"]]
    missing = [name for name in report["missing_keys"] if not any(fnmatch(name, one) for one in may_miss)]
    for what, found in (("of another size", sorted(others)), ("missing", sorted(missing))):
        if found:
            raise _misfit(folder, f"{len(found)} tensors are {what}: {'; '.join(found[:3])}")
    return model.eval().requires_grad_(False)


LOADING = {
    "output_loading_info": True,
    "local_files_only": True,
    "ignore_mismatched_sizes": True,  # they are refused, all of them named, by load_model
    "dtype": torch.float32,
}


def _plain(shape: Any) -> list[int]:
    return [int(side) for side in shape]


def check_weights(folder: Path) -> None:
    """Refuse a folder without weights.

    Raises:
        DataError: none of the files that hold weights is there.
    """
    if any((folder / name).is_file() for name in WEIGHTS):
        return
    held = sorted(path.name for path in folder.iterdir())[:6]
    raise DataError(
        "The folder has no weights.",
        where=str(folder),
        got=", ".join(held) or "an empty folder",
        expected=f"one of {', '.join(WEIGHTS)}",
        hint="save_pretrained writes them beside config.json",
    )


def _misfit(folder: Path, got: str) -> DataError:
    lines = [line.strip() for line in got.splitlines() if line.strip()]
    return DataError(
        "The weights do not fit the model that the configuration describes.",
        where=str(folder),
        got=lines[0][:300] if lines else "",
        expected="config.json and weights of one save_pretrained",
        hint="compare the sizes in config.json with those of the weights",
    )


def image_processor(folder: Path, **options: Any) -> Any:
    """The folder's own image processor.

    Raises:
        DataError: the folder has none.
    """
    from transformers import AutoImageProcessor

    try:
        return AutoImageProcessor.from_pretrained(str(folder), local_files_only=True, **options)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            "The folder has no image processor.",
            where=str(folder),
            got=str(error).splitlines()[0][:200],
            expected="preprocessor_config.json or processor_config.json",
            hint="copy preprocessor_config.json of the model's repository into the folder",
        ) from None


def tokenizer(folder: Path) -> Any:
    """The folder's own tokenizer.

    Raises:
        DataError: the folder has none.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            "The folder has no tokenizer, and the model reads words.",
            where=str(folder),
            got=str(error).splitlines()[0][:200],
            expected="tokenizer.json, or vocab.txt, or vocab.json with merges.txt",
        ) from None
