"""Base class of the extractors: one folder with model and image processor, and the store's record of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, ClassVar

import torch

from vlcli import __version__
from vlcli.detection import Extractor
from vlcli_hf.folder import HELP, digest, locate

HIDDEN = ("self", "__class__", "weights", "batch_size", "words")
"""Parameters that a store does not record: the path of the folder (its hash is recorded), the batch size, and words,
which are recorded as names of classes or concepts."""


class FolderExtractor(Extractor):
    """An extractor whose network and image processor come from one folder of transformers.

    Args:
        parameters: of the subclass, by name (its ``locals()``), with ``weights``, ``hub`` and ``batch_size``.
        weights: the model's folder, under the data root.
        hub: a repository of the Hugging Face hub that is in the local cache, in place of ``weights``.
        precision: ``float32``, or ``bf16`` and ``fp16`` autocast.
        batch_size: images at a time where the stage does not say.

    Attributes:
        name: under which recipes know the extractor.
        network: holds the model of transformers as its attribute ``model``; a subclass sets it.
    """

    weights_help: ClassVar[str] = HELP
    name: ClassVar[str]
    network: Any

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = {key: value for key, value in parameters.items() if key not in HIDDEN}
        self.folder = locate(parameters["weights"], parameters["hub"])
        self.trained_on = parameters["hub"] or self.folder.name
        self.batch_size = parameters["batch_size"]

    @property
    def model_class(self) -> str:
        """Name of the class of transformers that was loaded."""
        return type(self.network.model).__name__

    @cached_property
    def _sha256(self) -> str:
        return digest(self.folder)

    def regions(self) -> str:
        """Return what the regions are, as the store says it; called by :meth:`provenance`."""
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
            "versions": {
                "vlcli": __version__,
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            },
        }


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Return the context in which a network of ``precision`` runs."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16 if precision == "bf16" else torch.float16)


__all__ = ["FolderExtractor", "autocast"]
