"""The exporter ``hub``: a folder with weights, configuration, recipe, tokenizer and model card."""

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
# Files beside a network, transformers' classes that read them, and names for the card
PROCESSORS = (
    ("tokenizer_config.json", "AutoTokenizer", "tokenizer"),
    ("preprocessor_config.json", "AutoImageProcessor", "processor"),
)
# Endings of classes with a head, and of transformers' automatic classes that load them
HEADS = ("ForImageClassification", "ForObjectDetection", "ForPreTraining", "ForQuestionAnswering")


class Hub(Exporter):
    """A folder for a model hub: weights as safetensors, config, recipe, tokenizer, and README.md as model card.

    ``vlcli.load`` loads it, and ``vlcli push`` uploads it. Where transformers has a class for the model, or for its
    towers, the folder also has the files of ``format: transformers``, and ``AutoModel.from_pretrained`` loads it.

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
            weights = Safetensors(dtype=self.dtype).export(trained, beside, progress)
            classes, lines_of = write_transformers(trained, beside, progress)
            recipe = stage.parent / "recipe.yaml"
            if recipe.is_file():
                shutil.copyfile(recipe, beside / "recipe.yaml")
            page = card(trained, title=title, licence=self.license, loads=[*LOAD, *lines(classes, beside)])
            write_text(beside / "README.md", page)
        notes = [f"{final}: upload it with: vlcli push {final} NAME", *lines_of]
        if self.license == "other":
            notes.append("the card says `license: other`: name yours, format: {name: hub, license: apache-2.0}")
        return Exported({"hub": FOLDER}, notes, weights.metrics)


def lines(classes: dict[str, str], folder: Path) -> list[str]:
    """Return Python that loads networks, tokenizer and image processor of a folder; ``classes`` by subfolder."""
    if not classes:
        return []
    code, names = [], []
    for part, kind in classes.items():
        where = f', subfolder="{part}"' if part else ""
        names.append("AutoModel" + next((head for head in HEADS if head in kind), ""))
        code.append(f'{part or "same"} = {names[-1]}.from_pretrained("FOLDER"{where})  # {kind}')
        for file, auto, what in PROCESSORS:
            if (folder / part / file).is_file():
                code.append(f'{what} = {auto}.from_pretrained("FOLDER"{where})')
                names.append(auto)
    return ["", f"from transformers import {', '.join(sorted(set(names)))}", "", *code]


def write_transformers(trained: Trained, folder: Path, progress: Progress) -> tuple[dict[str, str], list[str]]:
    """Write the files of transformers' class into ``folder``, or into subfolders for parts of a model.

    Returns:
        The class by subfolder (empty if no class of transformers equals this model), and notes: losses, or the reason.
    """
    with tempfile.TemporaryDirectory(dir=folder) as other:
        try:
            notes = exporter_of(trained).export(trained, Path(other), progress).notes
        except (ComponentError, DataError) as error:
            why = f"{error.what.rstrip('.')} ({error.got})" if error.got else error.what
            return {}, [f"AutoModel does not load it: {why}"]
        model, classes = Path(other) / "model", {}
        for file in sorted(model.rglob("config.json")):
            named = json.loads(file.read_text(encoding="utf-8")).get("architectures") or ["AutoModel"]
            part = str(file.parent.relative_to(model))
            classes["" if part == "." else part] = str(named[0])
        for file in model.iterdir():
            file.replace(folder / file.name)
    loads = [f"transformers loads {part or 'it'} as {kind}" for part, kind in classes.items()]
    return classes, [*loads, *(line for line in notes if "largest difference" not in line)]
