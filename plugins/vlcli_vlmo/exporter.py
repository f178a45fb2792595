"""Exports a file that the released VLMo code loads (``vlmo``)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file

from vlcli.errors import ComponentError
from vlcli.export import Exported, Exporter, Trained
from vlcli.files import written
from vlcli.progress import Progress
from vlcli_vlmo.model import VLMo
from vlcli_vlmo.weights import to_released


class Released(Exporter):
    """Weights by the names of the released VLMo code, heads included.

    Args:
        format: ``ckpt``: the container that code reads (tensors under ``state_dict``); ``safetensors``: bare.
    """

    paper = "VLMo, Bao et al., NeurIPS 2022, released code"

    def __init__(self, *, format: Literal["ckpt", "safetensors"] = "ckpt") -> None:
        self.format = format

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        if not isinstance(trained.model, VLMo):
            kind = type(trained.model).__name__
            raise ComponentError("Only VLMo has these names.", where="exporter vlmo", got=kind, expected="model: vlmo")
        state = {n: v for n, v in trained.module.state_dict().items() if not n.startswith("teacher.")}
        named = {name: value.detach().cpu().contiguous().clone() for name, value in to_released(state).items()}
        final = folder / f"vlmo.{self.format}"
        with written(final) as beside:
            if self.format == "ckpt":
                torch.save({"state_dict": named}, beside)
            else:
                save_file(named, beside)
        return Exported({"weights": final.name}, [f"{final}: {len(named)} tensors by the released names"], {})
