"""Weights of image backbones in a folder, recognised by the names of their tensors."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from vlcli.data.files import walk

_ENDINGS = (".safetensors", ".pth", ".pt", ".bin")
_DEPTHS = {(6, True): "resnet50", (23, True): "resnet101", (36, True): "resnet152", (2, False): "resnet18"}
_DEPTHS[6, False] = "resnet34"
_MOST_HEADER = 64 * 2**20


@dataclass(frozen=True)
class Weights:
    """A file with a network's weights.

    Attributes:
        file: relative to the data root.
        arch: name of the network for the extractor ``backbone``.
        layout: ``torchvision``, or ``caffe`` where the file's name says so.
    """

    file: str
    arch: str
    layout: str


def find_weights(root: Path) -> tuple[Weights | None, list[str]]:
    """The first ResNet under a folder, and a line for each other file of weights: why it is not used."""
    found: Weights | None = None
    aside: list[str] = []
    for place, names in walk(root):
        if "stage.json" in names or place.name.startswith("step-"):
            continue
        for name in names:
            if not name.endswith(_ENDINGS):
                continue
            file, arch = (place / name).relative_to(root).as_posix(), _arch(place / name)
            if arch is None:
                aside.append(f"{file}: its weights are not those of a ResNet, by its tensors or its name")
            elif found is not None:
                aside.append(f"{file}: the weights of {found.file} are used")
            else:
                caffe = re.search(r"caffe|msra|detectron", name.lower()) is not None
                found = Weights(file, arch, "caffe" if caffe else "torchvision")
    return found, aside


def _arch(path: Path) -> str | None:
    """The ResNet whose tensors a file holds; of files other than safetensors the name must say it."""
    if path.suffix != ".safetensors":
        said = re.search(r"resnet-?(18|34|50|101|152)", path.name.lower())
        return f"resnet{said[1]}" if said else None
    names = _tensors(path)
    blocks = {int(hit[1]) for name in names if (hit := re.search(r"(?:^|\.)layer3\.(\d+)\.conv1\.", name))}
    deep = any(re.search(r"(?:^|\.)layer3\.0\.conv3\.", name) for name in names)
    return _DEPTHS.get((len(blocks), deep))


def _tensors(path: Path) -> list[str]:
    """Names of the tensors in a safetensors file, from its header."""
    try:
        with path.open("rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            return list(json.loads(file.read(size))) if size < _MOST_HEADER else []
    except (OSError, ValueError, struct.error):
        return []
