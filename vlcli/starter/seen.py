"""Records of what lies in a folder: weights, rows as a reader understands them."""

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from vlcli.data import Example, Reader, Recognised
from vlcli.data.recognition.pictures import Pictures
from vlcli.files import walk

_ENDINGS = (".safetensors", ".pth", ".pt", ".bin")
_DEPTHS = {(6, True): "resnet50", (23, True): "resnet101", (36, True): "resnet152", (2, False): "resnet18"}
_DEPTHS[6, False] = "resnet34"
_MOST_HEADER = 64 * 2**20


@dataclass(frozen=True)
class Weights:
    """File relative to the data root, ``arch`` of the extractor ``backbone``, and layout (torchvision or caffe)."""

    file: str
    arch: str
    layout: str


def find_weights(root: Path) -> tuple[Weights | None, list[str]]:
    """Return the first ResNet under a folder, and for each other file of weights why it is not used."""
    weights: Weights | None = None
    aside: list[str] = []
    for folder, names in walk(root):
        if "stage.json" in names or folder.name.startswith("step-"):
            continue
        for name in (name for name in names if name.endswith(_ENDINGS)):
            file, arch = (folder / name).relative_to(root).as_posix(), _arch(folder / name)
            if arch is None:
                aside.append(f"{file}: its weights are not those of a ResNet, by its tensors or its name")
            elif weights is not None:
                aside.append(f"{file}: the weights of {weights.file} are used")
            else:
                caffe = re.search(r"caffe|msra|detectron", name.lower()) is not None
                weights = Weights(file, arch, "caffe" if caffe else "torchvision")
    return weights, aside


def _arch(path: Path) -> str | None:
    """Return the ResNet whose tensors a file holds; of files other than safetensors the name must say it."""
    if path.suffix != ".safetensors":
        depth = re.search(r"resnet-?(18|34|50|101|152)", path.name.lower())
        return f"resnet{depth[1]}" if depth else None
    try:
        with path.open("rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            names = list(json.loads(file.read(size))) if size < _MOST_HEADER else []
    except (OSError, ValueError, struct.error):
        return None
    blocks = {int(hit[1]) for name in names if (hit := re.search(r"(?:^|\.)layer3\.(\d+)\.conv1\.", name))}
    deep = any(re.search(r"(?:^|\.)layer3\.0\.conv3\.", name) for name in names)
    return _DEPTHS.get((len(blocks), deep))


@dataclass
class Seen:
    """What lies in a folder.

    Attributes:
        sources: the data sets that readers recognise.
        aside: files that are not used, each with the reason.
        unreadable: pictures that cannot be read, with the reason.
        checked: a line where not every picture was decoded.
    """

    root: Path
    pictures: Pictures
    sources: list[Recognised]
    aside: list[str]
    boxes: list[str]
    weights: Weights | None
    unreadable: dict[Path, str]
    checked: str

    @cached_property
    def paths(self) -> set[Path]:
        """The pictures' absolute paths."""
        return {path.absolute() for paths in self.pictures.by_id.values() for path in paths}

    def name(self, path: Path) -> str:
        """Return a path relative to the folder if it lies there."""
        path, root = path.absolute(), self.root.absolute()
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


class Row(NamedTuple):
    """One example in words: its pictures, its sentence, and its answer, label or boxes; empty where there is none."""

    files: list[Path]
    text: str
    target: str


def ids_of(readers: Sequence[Reader]) -> str:
    """Return the form of image ids (``name``, ``path``, ``file``) in which no two pictures of the data share one.

    Raises:
        DataError: several files fit a name, or two names find one file.
    """
    paths: dict[str, Path] = {}
    for reader in readers:
        for name, path in reader.image_files().items():
            if reader.ids != "name" or paths.setdefault(name, path) != path:
                return reader.ids if reader.ids != "name" else "path"
    return "name"


def rows_of(reader: Reader, examples: Sequence[Example], count: int) -> list[Row]:
    """Return some examples, spread over all."""
    chosen = examples[:: max(1, len(examples) // count)][:count]
    names, boxes = reader.label_names(), reader.boxes() if any(not one.targets for one in chosen) else {}
    kinds = reader.class_names() if boxes else []
    rows = []
    for example in chosen:
        target = _target(example.targets, names)
        if not target and example.images and (box := boxes.get(example.images[0])) is not None:
            classes = [] if box.classes is None else [kinds[int(one)] for one in box.classes if int(one) < len(kinds)]
            target = f"{len(box)} boxes: {', '.join(classes[:5])}".removesuffix(": ")
        rows.append(Row([reader.locate(name) for name in example.images], example.text or "", target))
    return rows


def _target(targets: dict[str, Any], names: Sequence[str]) -> str:
    if scores := targets.get("answers"):
        return " / ".join(sorted(scores, key=lambda answer: -scores[answer])[:3])
    if isinstance(label := targets.get("label"), int):
        return names[label] if 0 <= label < len(names) else str(label)
    if isinstance(labels := targets.get("labels"), list):
        return ", ".join(labels) or "none"
    box = targets.get("pixel_box", targets.get("box"))
    return "" if box is None else f"box {[round(float(side), 2) for side in box]}"
