"""Loads models, image processors and tokenizers from folders as transformers' ``save_pretrained`` writes them."""

import json
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch

from vlcli.errors import DataError
from vlcli.nn.folders import quiet_transformers
from vlcli.nn.weights import WEIGHT_FILES

# Files of which a folder with a tokenizer holds one
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")


def transformers_type(folder: Path) -> str:
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


def transformers_model(
    target: Any, folder: Path, *, may_miss: Sequence[str] = (), trains: bool = False, **options: Any
) -> Any:
    """Load a model of transformers with the folder's weights, in float32 and evaluation mode.

    The folder may lack weights that match patterns of ``may_miss``. Parameters are frozen unless it ``trains``. Raises
    DataError if the folder has no weights, or others than the model that its configuration describes.
    """
    if not any((folder / name).is_file() for name in WEIGHT_FILES):
        got = ", ".join(sorted(path.name for path in folder.glob("*"))[:6]) or "an empty folder"
        got = got if folder.is_dir() else "no such folder"
        expected, hint = f"one of {', '.join(WEIGHT_FILES)}", "save_pretrained writes them beside config.json"
        raise DataError("The folder has no weights.", where=str(folder), got=got, expected=expected, hint=hint)
    try:
        with torch.random.fork_rng(devices=[]), quiet_transformers():
            model, report = target.from_pretrained(str(folder), **LOADING, **options)
    except Exception as error:  # safetensors, torch and transformers raise classes of their own
        raise _misfit(folder, "cannot be read, or do not fit", str(error)) from None
    others = [f"{name} {[*have]} where {[*want]} is wanted" for name, have, want in report["mismatched_keys"]]
    lost = {*report["missing_keys"]} - {name for name, *_ in report["mismatched_keys"]}
    missing = [name for name in lost if not any(fnmatch(name, one) for one in may_miss)]
    for what, names in (("of another shape", sorted(others)), ("missing", sorted(missing))):
        if names:
            raise _misfit(folder, "do not fit", f"{len(names)} tensors {what}: {'; '.join(names[:3])}")
    return model.eval() if trains else model.eval().requires_grad_(False)


LOADING = {
    "output_loading_info": True,
    "local_files_only": True,
    "ignore_mismatched_sizes": True,  # they are refused, all of them named, by transformers_model
    "dtype": torch.float32,
}


def _misfit(folder: Path, how: str, text: str) -> DataError:
    what = f"The weights of the model {how} its configuration."
    got = next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]
    expected = "config.json and weights of one save_pretrained"
    hint = "compare the sizes in config.json with those of the weights"
    return DataError(what, where=str(folder), got=got, expected=expected, hint=hint)


def transformers_processor(folder: Path) -> Any:
    """Load the folder's image processor."""
    from transformers import AutoImageProcessor

    expected = "preprocessor_config.json or processor_config.json"
    hint = "copy preprocessor_config.json of the model's repository into the folder"
    return _loaded(AutoImageProcessor, folder, "The folder has no image processor.", expected, hint)


def transformers_tokenizer(folder: Path) -> Any:
    """Load the folder's tokenizer."""
    from transformers import AutoTokenizer

    what, expected = "The folder has no tokenizer, and the model reads words.", f"one of {', '.join(VOCABULARIES)}"
    if not any(file for name in VOCABULARIES for file in folder.glob(name)):
        raise DataError(what, where=str(folder), expected=expected)  # transformers would build one that knows no word
    return _loaded(AutoTokenizer, folder, what, expected, "")


def _loaded(target: Any, folder: Path, what: str, expected: str, hint: str) -> Any:
    try:
        return target.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        got = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise DataError(what, where=str(folder), got=got, expected=expected, hint=hint) from None
