"""Writes how sentences and pictures become a graph's inputs, for programs without vlcli."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.data.preparation import preparation
from vlcli.data.transforms import Transform
from vlcli.export.base import Trained
from vlcli.nn.model import InputSpec
from vlcli.version import __version__

FILE = "preprocessing.json"
FORMAT = "vlcli-preprocessing"
VERSION = 1
BOXES = "x1, y1, x2, y2 divided by the width and height of the picture, between 0 and 1"


def preprocessing(trained: Trained) -> dict[str, Any]:
    """Return the content of ``preprocessing.json``: text, pixels, regions, answers, generation (docs/onnx.md)."""
    needs = trained.model.input_spec()
    losses = {getattr(part, "loss", None) for part in trained.module.objectives.values()}
    task = getattr(trained, "task_spec", None)
    settings = getattr(registry.build("tasks", task), "settings", None) if task else None
    regions = {
        "width": trained.data_spec.region_dim,
        "count": trained.data_spec.regions,
        "boxes": BOXES,
        "grid": None if needs.grid is None else list(needs.grid),
        "extractor": getattr(trained, "info", {}).get("extractor"),
    }
    return {
        "format": FORMAT,
        "version": VERSION,
        "vlcli": __version__,
        "text": text(trained) if needs.text and trained.tokenizer is not None else None,
        "pixels": pixels(trained, needs) if needs.pixels else None,
        "regions": regions if needs.regions else None,
        "concepts": list(trained.data_spec.concepts) if needs.concepts else None,
        "answers": list(trained.data_spec.answers),
        "probabilities": "sigmoid" if "bce" in losses else "softmax",
        "generation": None if settings is None else asdict(settings),
    }


def text(trained: Trained) -> dict[str, Any]:
    """Describe how a sentence becomes ids."""
    options, sizes = trained.text_options, trained.data_spec
    rule = preparation(str(options.get("prepare", "as-written")), options.get("words"))
    return {
        "tokenizer": "vocab/tokenizer.json",
        "length": sizes.text_length,
        "prepare": asdict(rule),
        "end": options.get("end", "sep") == "sep",
        "ids": {name: getattr(sizes, f"{name}_id") for name in ("pad", "unk", "cls", "sep", "mask")},
    }


def pixels(trained: Trained, needs: InputSpec) -> dict[str, Any]:
    """Describe how a picture becomes pixels: its steps in order, then size, scale, mean and standard deviation."""
    spec = getattr(trained, "transform_spec", None)
    transform: Transform | None = registry.of(Transform).build(spec, needs) if spec else None
    sized = transform is not None and transform.sizes
    return {
        "turn": "as the EXIF orientation says",
        "colours": "RGB",
        "steps": [] if transform is None else transform.steps(),
        "size": needs.size,
        "short": 0 if sized else needs.short,
        "long": 0 if sized else needs.long,
        "interpolation": "bicubic",
        "divide": 255,
        "mean": list(needs.mean),
        "std": list(needs.std),
    }


def copy_tokenizer(trained: Trained, folder: Path) -> bool:
    """Copy the tokenizer's files, and return whether there are any."""
    vocabulary = trained.folder / "vocab"
    if not vocabulary.is_dir():
        return False
    shutil.copytree(vocabulary, folder / "vocab", dirs_exist_ok=True)
    if trained.tokenizer is not None and not (folder / "vocab" / "tokenizer.json").is_file():
        trained.tokenizer.save(folder / "vocab")
    return True
