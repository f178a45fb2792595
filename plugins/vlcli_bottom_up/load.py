"""Build a detector around published weights, or with random ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from vlcli.errors import DataError
from vlcli.nn import WeightsReport, load_tensors, read_weights
from vlcli_bottom_up.architecture import published, read_architecture
from vlcli_bottom_up.detector import Detector
from vlcli_bottom_up.families import FAMILIES, Family, FamilyName
from vlcli_bottom_up.layouts import UNNEEDED, canonical, recognise
from vlcli_bottom_up.resnet import NormedConv

HELP = "docs/detectors.md says where detectors are published and how to convert them"
CELLS = "proposal_generator.anchor_generator.cell_anchors."


@dataclass(frozen=True)
class NetworkOptions:
    """What a recipe says of the network.

    Attributes:
        family: of the checkpoint; ``auto`` recognises it.
        depth: of random weights.
        cardinality: of random weights; 0 for the family's own.
        width: of random weights; 0 for the family's own.
        pyramid: of random weights; None for the family's own.
        resolution: cells per side of a region; 0 for the family's own.
        sampling: samples per side of a cell; None for the family's own.
        seed: of random weights.
    """

    family: FamilyName | Literal["auto"] = "auto"
    depth: int = 101
    cardinality: int = 0
    width: int = 0
    pyramid: int | None = None
    resolution: int = 0
    sampling: int | None = None
    seed: int = 0

    def family_of(self, name: FamilyName) -> Family:
        """The conventions, with what the recipe changes in them."""
        family = FAMILIES[name]
        if self.sampling is not None:
            family = replace(family, sampling=(self.sampling,) * 2)
        return replace(family, resolution=(self.resolution,) * 2) if self.resolution else family


def load_detector(path: str | None, options: NetworkOptions) -> tuple[Detector, WeightsReport | None]:
    """A detector, with its weights where there are any.

    Raises:
        DataError: the file is missing, damaged, of an unknown layout, or does not fit completely.
    """
    if path is None:
        return random_detector(options), None
    if not Path(path).is_file():
        raise DataError("the detector's weights do not exist", where=path, hint=HELP)
    detector, tensors = fitting_detector(found := read_weights(path), path, options)
    report = load_tensors(detector, tensors, path, UNNEEDED)
    return detector, replace(report, matched=report.matched - len(_own_anchors(detector, canonical(found))))


def fitting_detector(
    found: Mapping[str, Tensor], where: str, options: NetworkOptions
) -> tuple[Detector, dict[str, Tensor]]:
    """A detector of the sizes of a checkpoint's tensors, and these under its names, with anchors.

    Args:
        found: by the checkpoint's names.
        where: the file, for messages.
        options: what the recipe says of the network.

    Raises:
        DataError: they are of an unknown layout.
    """
    shapes = {name: tuple(value.shape) for name, value in found.items()}
    family = options.family_of(recognise(found, shapes, where) if options.family == "auto" else options.family)
    tensors = canonical(found)
    detector = Detector(family, read_architecture(tensors, where))
    return detector, _with_anchors(detector, tensors)


def _own_anchors(detector: Detector, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n: v for n, v in detector.state_dict().items() if n.startswith(CELLS) and n not in tensors}


def _with_anchors(detector: Detector, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return tensors | _own_anchors(detector, tensors)


def random_detector(options: NetworkOptions) -> Detector:
    """Random weights, scaled so that activations neither vanish nor blow up through the frozen normalisations."""
    family = options.family_of("caffe" if options.family == "auto" else options.family)
    sizes = published(family, options.depth, options.cardinality, options.width, options.pyramid)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        detector = Detector(family, sizes)
        draw(detector)
    return detector


@torch.no_grad()
def draw(detector: nn.Module) -> None:
    """Draw weights: He et al. 2015 for convolutions, small residual branches, small heads."""
    for name, module in detector.named_modules():
        if isinstance(module, NormedConv):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            module.get_submodule("norm").get_buffer("weight").fill_(0.2 if name.endswith("conv3") else 0.7)
        elif isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.normal_(module.weight, std=0.01)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
