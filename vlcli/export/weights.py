"""The exporter ``safetensors``: weights, configuration and vocabulary in one folder."""

import json
import shutil
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from vlcli.export.base import Exported, Exporter, Trained
from vlcli.files import new_folder, write_json
from vlcli.nn.weights import SCALE, unscaled
from vlcli.progress import Progress

FOLDER = "model"
WEIGHTS = "model.safetensors"
INT8 = "int8"
KINDS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Safetensors(Exporter):
    """Weights as safetensors with config and vocabulary: a folder that ``vlcli.load`` and ``from`` take.

    Args:
        dtype: type of the floating-point weights on disk; loading converts them to float32. ``int8``: matrices of 8
            bits with a factor for each row, other weights as float16.
        objectives: keep the objectives' heads.
    """

    def __init__(
        self, *, dtype: Literal["float32", "float16", "bfloat16", "int8"] = "float32", objectives: bool = True
    ) -> None:
        self.dtype, self.objectives = dtype, objectives

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        final = folder / FOLDER
        original = load_file(trained.folder / WEIGHTS)
        kept = {n: v for n, v in original.items() if self.objectives or not n.startswith("objectives.")}
        chosen: dict[str, Tensor] = {}
        for name, value in kept.items():
            chosen |= self._stored(name, value) if value.is_floating_point() else {name: value}
        config = json.loads((trained.folder / "config.json").read_text(encoding="utf-8"))
        config.pop("files", None)  # size and checksum of the weights it was made from
        if not self.objectives:
            config |= {"objectives": [], "task": None}
        with new_folder(final) as beside:
            save_file(chosen, beside / WEIGHTS, {"format": "pt"})
            write_json(beside / "config.json", config)
            if (trained.folder / "vocab").is_dir():
                shutil.copytree(trained.folder / "vocab", beside / "vocab")
        size = (final / WEIGHTS).stat().st_size / 2**20
        written = {name: value for name, value in unscaled(load_file(final / WEIGHTS)).items() if value.numel()}
        changes = [(original[name].float() - value.float()).abs().max().item() for name, value in written.items()]
        lost = max(changes, default=0.0)
        notes = [f"{final}: {len(chosen)} tensors, {size:.1f} MB; largest change of a weight {lost:.2g}"]
        return Exported({"model": FOLDER}, notes, {"max_weight_change": lost})

    def _stored(self, name: str, value: Tensor) -> dict[str, Tensor]:
        if self.dtype != INT8 or value.dim() < 2 or not value.numel():
            return {name: value.to(KINDS.get(self.dtype, torch.float16))}
        scale = value.abs().amax(tuple(range(1, value.dim())), keepdim=True).clamp_min(1e-12) / 127
        return {name: (value / scale).round().to(torch.int8), name + SCALE: scale}
