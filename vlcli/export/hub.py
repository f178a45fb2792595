"""The exporter ``hub``: a folder to share, with weights, config, recipe, tokenizer and a model card."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Literal

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.export.base import Exported, Exporter, Trained
from vlcli.export.card import card, model_name
from vlcli.export.weights import Safetensors
from vlcli.files import new_folder, write_text
from vlcli.progress import Progress

FOLDER = "hub"
LOAD = ["import vlcli", "", 'model = vlcli.load("FOLDER")  # the folder of this file']


class Hub(Exporter):
    """A folder for a model hub: weights as safetensors, config, recipe, tokenizer, and README.md as model card.

    ``vlcli.load`` loads it, and ``vlcli push`` uploads it. Where transformers has a class for the model, its config and
    weights lie in the folder too, and ``AutoModel.from_pretrained`` loads it.

    Args:
        license: identifier of the weights' licence as hubs write it, such as ``apache-2.0``; you decide it.
        title: heading of the card; None: the model's name and its stage.
        dtype: type of the weights on disk.
    """

    def __init__(
        self,
        *,
        license: str = "other",
        title: str | None = None,
        dtype: Literal["float32", "float16", "bfloat16"] = "float32",
    ) -> None:
        self.license, self.title, self.dtype = license, title, dtype

    def export(self, trained: Trained, folder: Path, progress: Progress) -> Exported:
        """Write ``hub/`` whole: beside, then renamed."""
        final, stage = folder / FOLDER, trained.folder.parent
        title = self.title or f"{model_name(trained)}, {stage.name}"
        with new_folder(final) as beside:
            made = Safetensors(dtype=self.dtype).export(trained, beside, progress)
            theirs, why = write_transformers(trained, beside, progress)
            recipe = stage.parent / "recipe.yaml"
            if recipe.is_file():
                shutil.copyfile(recipe, beside / "recipe.yaml")
            page = card(trained, title=title, licence=self.license, loads=[*LOAD, *_lines(theirs)])
            write_text(beside / "README.md", page)
        notes = [f"{final}: upload it with: vlcli push {final} NAME"]
        notes += [f"transformers loads it as {theirs}" if theirs else f"AutoModel does not load it: {why}"]
        notes += ["the card says `license: other`: name yours, format: {name: hub, license: apache-2.0}"] * (
            self.license == "other"
        )
        return Exported({"hub": FOLDER}, notes, made.metrics)


def _lines(theirs: str) -> list[str]:
    if not theirs:
        return []
    return ["", "from transformers import AutoModel", "", f'same = AutoModel.from_pretrained("FOLDER")  # {theirs}']


def write_transformers(trained: Trained, folder: Path, progress: Progress) -> tuple[str, str]:
    """Config and weights of transformers' class in ``folder``, by the first exporter that can express the model.

    Returns:
        The class, as its config names it, empty where no class of transformers equals this model, or transformers is
        not installed; and then the reason.
    """
    family = type(trained.model).__name__
    why = f"vlcli knows no class of transformers that equals {family}"
    for name in registry.names("exporters"):
        if getattr(registry.load("exporters", name), "writes", "") != "transformers":
            continue
        with tempfile.TemporaryDirectory(dir=folder) as other:
            try:
                registry.exporters.build(name).export(trained, Path(other), progress)
            except ComponentError as error:
                if error.got != family:  # else the exporter is for another family
                    why = f"{error.what.rstrip('.')} ({error.got})" if error.got else error.what
                continue
            for file in (Path(other) / "model").iterdir():
                file.replace(folder / file.name)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return str(next(iter(config.get("architectures") or ["AutoModel"]))), ""
    return "", why
