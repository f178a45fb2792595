"""The exporter ``hub``: a folder to share, with weights, config, recipe, tokenizer and a model card."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Literal

from vlcli.errors import ComponentError, DataError
from vlcli.export.base import Exported, Exporter, Trained
from vlcli.export.card import card, model_name
from vlcli.export.conversion import exporter_of
from vlcli.export.weights import Safetensors
from vlcli.files import new_folder, write_text
from vlcli.progress import Progress

FOLDER = "hub"
LOAD = ["import vlcli", "", 'model = vlcli.load("FOLDER")  # the folder of this file']
PROCESSORS = (
    ("tokenizer_config.json", "AutoTokenizer", "tokenizer"),
    ("preprocessor_config.json", "AutoImageProcessor", "processor"),
)
"""Files beside a network, what reads them, and what the card calls it."""
HEADS = ("ForImageClassification", "ForObjectDetection", "ForPreTraining", "ForQuestionAnswering")
"""Ends of the names of classes with a head, and of transformers' automatic classes that load them."""


class Hub(Exporter):
    """A folder for a model hub: weights as safetensors, config, recipe, tokenizer, and README.md as model card.

    ``vlcli.load`` loads it, and ``vlcli push`` uploads it. Where transformers has a class for the model, or for its
    towers, the files of ``format: transformers`` lie in the folder too, and ``AutoModel.from_pretrained`` loads it.

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
        final, stage = folder / FOLDER, trained.folder.parent
        title = self.title or f"{model_name(trained)}, {stage.name}"
        with new_folder(final) as beside:
            made = Safetensors(dtype=self.dtype).export(trained, beside, progress)
            theirs, said = write_transformers(trained, beside, progress)
            recipe = stage.parent / "recipe.yaml"
            if recipe.is_file():
                shutil.copyfile(recipe, beside / "recipe.yaml")
            page = card(trained, title=title, licence=self.license, loads=[*LOAD, *lines(theirs, beside)])
            write_text(beside / "README.md", page)
        notes = [f"{final}: upload it with: vlcli push {final} NAME", *said]
        notes += ["the card says `license: other`: name yours, format: {name: hub, license: apache-2.0}"] * (
            self.license == "other"
        )
        return Exported({"hub": FOLDER}, notes, made.metrics)


def lines(theirs: dict[str, str], folder: Path) -> list[str]:
    """Python that loads what transformers' classes know of a folder: networks, tokenizer, image processor."""
    if not theirs:
        return []
    made, names = [], []
    for place, kind in theirs.items():
        where = f', subfolder="{place}"' if place else ""
        names.append("AutoModel" + next((head for head in HEADS if head in kind), ""))
        made.append(f'{place or "same"} = {names[-1]}.from_pretrained("FOLDER"{where})  # {kind}')
        for file, auto, what in PROCESSORS:
            if (folder / place / file).is_file():
                made.append(f'{what} = {auto}.from_pretrained("FOLDER"{where})')
                names.append(auto)
    return ["", f"from transformers import {', '.join(sorted(set(names)))}", "", *made]


def write_transformers(trained: Trained, folder: Path, progress: Progress) -> tuple[dict[str, str], list[str]]:
    """The files of transformers' class in ``folder``, or in folders of their own for parts of a model.

    Returns:
        The class by folder, empty where no class of transformers equals this model;
        and notes: what was left behind, or the reason.
    """
    with tempfile.TemporaryDirectory(dir=folder) as other:
        try:
            said = exporter_of(trained).export(trained, Path(other), progress).notes
        except (ComponentError, DataError) as error:
            why = f"{error.what.rstrip('.')} ({error.got})" if error.got else error.what
            return {}, [f"AutoModel does not load it: {why}"]
        made = Path(other) / "model"
        theirs = {str(file.parent.relative_to(made)): _class(file) for file in sorted(made.rglob("config.json"))}
        for file in made.iterdir():
            file.replace(folder / file.name)
    theirs = {"" if place == "." else place: kind for place, kind in theirs.items()}
    notes = [f"transformers loads {place or 'it'} as {kind}" for place, kind in theirs.items()]
    return theirs, [*notes, *(line for line in said if "largest difference" not in line)]


def _class(file: Path) -> str:
    config = json.loads(file.read_text(encoding="utf-8"))
    return str(next(iter(config.get("architectures") or ["AutoModel"])))
