"""Builds a detector with published or with random weights."""

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
    """Options of a recipe on the network, named as those of the extractor."""

    family: FamilyName | Literal["auto"] = "auto"
    depth: int = 101
    cardinality: int = 0
    width: int = 0
    pyramid: int | None = None
    resolution: int = 0
    sampling: int | None = None
    seed: int = 0

    def family_of(self, name: FamilyName) -> Family:
        """Return the conventions with the recipe's changes."""
        family = FAMILIES[name]
        if self.sampling is not None:
            family = replace(family, sampling=(self.sampling,) * 2)
        return replace(family, resolution=(self.resolution,) * 2) if self.resolution else family


def load_detector(path: str | None, options: NetworkOptions) -> tuple[Detector, WeightsReport | None]:
    """Return a detector, with its weights where there are any."""
    if path is None:  # random weights, scaled so that activations neither vanish nor blow up through frozen norms
        family = options.family_of("caffe" if options.family == "auto" else options.family)
        sizes = published(family, options.depth, options.cardinality, options.width, options.pyramid)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            detector = Detector(family, sizes)
            draw(detector)
        return detector, None
    if not Path(path).is_file():
        raise DataError("the detector's weights do not exist", where=path, hint=HELP)
    state = read_weights(path)
    detector, tensors = fitting_detector(state, path, options)
    report = load_tensors(detector, tensors, path, UNNEEDED)
    return detector, replace(report, matched=report.matched - len(tensors) + len(canonical(state)))


def fitting_detector(
    state: Mapping[str, Tensor], where: str, options: NetworkOptions
) -> tuple[Detector, dict[str, Tensor]]:
    """Return a detector of the sizes of a checkpoint's tensors, and these under its names, with the family's anchors
    where the checkpoint has none.
    """
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    family = options.family_of(recognise(state, shapes, where) if options.family == "auto" else options.family)
    tensors = canonical(state)
    detector = Detector(family, read_architecture(tensors, where))
    anchors = {n: v for n, v in detector.state_dict().items() if n.startswith(CELLS) and n not in tensors}
    return detector, tensors | anchors


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
