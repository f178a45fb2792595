"""Folders of transformers: configuration, weights, words, and the base class of the extractors that read them."""

import hashlib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch

from vlcli import __version__
from vlcli.data import read_vocabulary
from vlcli.detection import Extractor
from vlcli.errors import DataError, UsageError
from vlcli.files import cached_repository
from vlcli.images import Labels
from vlcli.nn import file_sha256

Words = tuple[str, ...] | str | None
"""A recipe's ``words``: a list, the path of a file, or None for the class names of the data."""


def chosen_words(words: Words, who: str) -> tuple[str, ...] | None:
    """Returns a recipe's words; None: the data's class names. Raises UsageError: no words; DataError: no file."""
    if words is None:
        return None
    if isinstance(words, str):
        path = Path(words)
        if not path.is_file():
            hint = "a list of words stands in brackets: words: [red circle, cat]"
            raise DataError("The file of words does not exist.", where=words, expected="one word a line", hint=hint)
        return checked([one.word for one in read_vocabulary(path)], who, words)
    return checked(words, who, "words")


def words_of_data(labels: Labels, who: str) -> tuple[str, ...]:
    """Returns the class names of the data. Raises UsageError: there are none."""
    return checked(labels.classes, who, "the class names of the data")


def checked(words: Sequence[str], who: str, where: str) -> tuple[str, ...]:
    """Returns words without blanks around them, each once. Raises UsageError: there are none."""
    known = tuple(dict.fromkeys(text for word in words if (text := " ".join(str(word).split()))))
    if not known:
        got = f"{len(words)} words, all of them blank" if words else "no words"
        expected = "words: [red circle, cat], words: FILE with one word a line, or data whose classes have names"
        raise UsageError(f"The extractor {who} has no words to look for.", where=where, got=got, expected=expected)
    return known


# Files beside the weights that decide features
SETTINGS = ("config.json", "preprocessor_config.json", "processor_config.json")
HELP = "a folder that save_pretrained wrote, or a repository of the Hugging Face hub: docs/backbones.md"


def locate(weights: str | None, hub: str | None) -> Path:
    """Return the folder that an extractor's options ``weights`` and ``hub`` name; nothing is downloaded.

    Raises:
        UsageError: none of them is given, or both are.
        DataError: there is no such folder, or the cache does not hold the repository.
    """
    if (weights is None) == (hub is None):
        got = "neither weights nor hub" if hub is None else f"weights: {weights} and hub: {hub}"
        expected = "weights: FOLDER (under the data root), or hub: OWNER/NAME (in the cache)"
        raise UsageError("This extractor takes its model from one place.", got=got, expected=expected)
    if hub is not None:
        if (snapshot := cached_repository(hub)) is not None:
            return snapshot
        from huggingface_hub import constants

        raise DataError(
            f"The cache of the Hugging Face hub does not hold {hub!r}, and vlcli downloads nothing.",
            where=constants.HF_HUB_CACHE,
            got="no snapshot of it",
            expected=f"a folder models--{hub.replace('/', '--')} with a snapshot",
            hint=f"hf download {hub}; or copy the repository and name its folder: weights: FOLDER",
        )
    path = Path(str(weights))
    folder = path.parent if path.is_file() else path
    if not folder.is_dir():
        expected = "a folder with config.json and model.safetensors"
        hint = "a repository in the cache of the Hugging Face hub is named by hub: OWNER/NAME"
        raise DataError("There is no such folder of transformers.", where=str(folder), expected=expected, hint=hint)
    return folder


HIDDEN = ("self", "__class__", "weights", "batch_size", "words")
"""Parameters that a store does not record: the path of the folder (its hash is recorded), the batch size, and words,
which are recorded as names of classes or concepts."""


class FolderExtractor(Extractor):
    """Base of extractors whose network and image processor come from one folder of transformers.

    Args:
        parameters: of the subclass, by name (its ``locals()``), with ``weights``, ``hub`` and ``batch_size``.
        weights: the model's folder, under the data root.
        hub: a repository of the Hugging Face hub that is in the local cache, in place of ``weights``.
        precision: ``float32``, or ``bf16`` and ``fp16`` autocast.
        batch_size: images at a time where the stage does not say.

    Attributes:
        network: holds the model of transformers as its attribute ``model``; a subclass sets it.
    """

    weights_help: ClassVar[str] = HELP
    name: ClassVar[str]  # under which recipes know the extractor
    network: Any

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = {key: value for key, value in parameters.items() if key not in HIDDEN}
        self.folder = locate(parameters["weights"], parameters["hub"])
        self.trained_on = parameters["hub"] or self.folder.name
        self.batch_size = parameters["batch_size"]

    @property
    def model_class(self) -> str:
        return type(self.network.model).__name__

    @cached_property
    def _sha256(self) -> str:
        # Over the weights and settings of the folder: the names of the files and the SHA-256 of each.
        patterns = (*SETTINGS, "*.safetensors", "pytorch_model*.bin")
        files = sorted(path for path in self.folder.iterdir() if any(fnmatch(path.name, one) for one in patterns))
        return hashlib.sha256("".join(f"{file.name} {file_sha256(file)}\n" for file in files).encode()).hexdigest()

    def regions(self) -> str:
        """Returns what the regions are, as the store says it; called by :meth:`provenance`."""
        return self.preparation.boxes

    def provenance(self) -> dict[str, Any]:
        import transformers

        parameters = {key: list(v) if isinstance(v, tuple) else v for key, v in self._parameters.items()}
        return {
            "extractor": self.name,
            "parameters": parameters,
            "model": self.model_class,
            "weights": self.trained_on,
            "weights_sha256": self._sha256,
            "trained_on": self.trained_on,
            "boxes": self.regions(),
            "versions": {"vlcli": __version__, "torch": torch.__version__, "transformers": transformers.__version__},
        }


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Returns the context in which a network of ``precision`` runs."""
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    return torch.autocast(device.type, dtype, enabled=precision != "float32")
