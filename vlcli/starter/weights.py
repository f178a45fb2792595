"""Finds weights of image backbones in a folder by the names of their tensors."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path

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
