"""Extracts regions with the published Visual Genome detectors (``bottom-up``)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
import torchvision
from pydantic import Field
from torch import Tensor, nn

from vlcli import __version__, detection
from vlcli.errors import DataError, UsageError
from vlcli.nn import WeightsReport, load_tensors, read_weights
from vlcli_bottom_up import families
from vlcli_bottom_up.detector import Detector
from vlcli_bottom_up.resnet import NormedConv

HELP = "docs/detectors.md says where detectors are published and how to convert them"
CELLS = "proposal_generator.anchor_generator.cell_anchors."


@dataclass(frozen=True)
class NetworkOptions:
    """Options of a recipe on the network, named as those of the extractor."""

    family: families.FamilyName | Literal["auto"] = "auto"
    depth: int = 101
    cardinality: int = 0
    width: int = 0
    pyramid: int | None = None
    resolution: int = 0
    sampling: int | None = None
    seed: int = 0

    def family_of(self, name: families.FamilyName) -> families.Family:
        family = families.FAMILIES[name]
        sampling = family.sampling if self.sampling is None else (self.sampling, self.sampling)
        resolution = (self.resolution, self.resolution) if self.resolution else family.resolution
        return replace(family, sampling=sampling, resolution=resolution)


def load_detector(path: str | None, options: NetworkOptions) -> tuple[Detector, WeightsReport | None]:
    """Return a detector, with its weights where there are any."""
    if path is None:  # random weights, scaled so that activations neither vanish nor blow up through frozen norms
        family = options.family_of("caffe" if options.family == "auto" else options.family)
        sizes = families.published(family, options.depth, options.cardinality, options.width, options.pyramid)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            detector = Detector(family, sizes)
            draw(detector)
        return detector, None
    if not Path(path).is_file():
        raise DataError("the detector's weights do not exist", where=path, hint=HELP)
    state = read_weights(path)
    detector, tensors = fitting_detector(state, path, options)
    report = load_tensors(detector, tensors, path, families.UNNEEDED)
    return detector, replace(report, matched=report.matched - len(tensors) + len(families.canonical(state)))


def fitting_detector(
    state: Mapping[str, Tensor], where: str, options: NetworkOptions
) -> tuple[Detector, dict[str, Tensor]]:
    """Return a detector of a checkpoint's sizes, and its tensors by the detector's names, with the family's anchors."""
    shapes = {name: tuple(value.shape) for name, value in state.items()}
    family = options.family_of(families.recognise(state, shapes, where) if options.family == "auto" else options.family)
    tensors = families.canonical(state)
    detector = Detector(family, families.read_architecture(tensors, where))
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


class BottomUpExtractor(detection.TwoStageExtractor):
    """Bottom-up attention: regions of the Visual Genome Faster R-CNN with classes and attributes, as published.

    ResNet-101 C4 (LXMERT and most others) or ResNeXt-101 with a pyramid (VLP, DiMBERT), on torchvision's operators.
    The family and all sizes are read off the weights; what no checkpoint says is its family's and may be set here.

    Args:
        weights: local safetensors file or tensors-only checkpoint; None for random weights from ``seed``.
        family: ``caffe`` (bottom-up-attention and MILVLG), ``airsplay``, ``detectron2`` or ``vlp``; ``auto`` knows them
            by their names.
        rule: of selection; ``family`` is its own.
        min_boxes: fewest boxes of an image.
        max_boxes: most boxes of an image.
        boxes: ``detected``; ``given`` ones, all of which stay; or ``cells``: each cell of the map that the last stage
            makes of the whole picture (Jiang et al. 2020's grid features; of a pyramid, its coarsest map of regions).
        nms: overlap above which the weaker of two boxes goes; None for the rule's own.
        confidence: a weaker box stays only to make up ``min_boxes``; None for the rule's own.
        class_probs: stored class probabilities: ``none``, ``classes`` (1600) or ``all`` (1601, as the detector
            orders them).
        attributes: store the attribute of each box and its probability.
        short: pixels of the resized image's shorter side; 0 for the family's own.
        long: most pixels of its longer side; 0 for the family's own.
        resize: ``float`` (OpenCV) or ``image`` (Pillow); ``family`` is its own.
        mean: of BGR in 0..255; None for the family's own.
        deviation: of BGR; None for 1.
        proposals_before: proposals taken to suppression, of each level; 0 for the family's own.
        proposals: proposals left by it; 0 for the family's own.
        proposal_nms: overlap of proposals above which the weaker goes.
        resolution: cells per side of a region; 0 for the family's own.
        sampling: RoIAlign's samples per side of a cell, 0 adapts to the box; None for the family's own (2; 0 for
            detectron2's own models, which have no attribute head).
        limit: most given boxes, by score; 0 for all.
        depth: of random weights: 50, 101 or 152.
        cardinality: of random weights: groups of the 3x3 convolutions; 0 for the family's own.
        width: of random weights: channels of a group; 0 for the family's own.
        pyramid: of random weights: channels of the pyramid; None for the family's own.
        seed: of random weights.
        batch_size: images at a time where the stage does not say.
    """

    paper = "Anderson et al. 2018, Bottom-Up and Top-Down Attention; Zhou et al. 2020, VLP"
    name: ClassVar[str] = "bottom-up"
    weights_help: ClassVar[str] = HELP

    def __init__(
        self,
        *,
        weights: str | None = None,
        family: Literal["auto", families.FamilyName] = "auto",
        rule: Literal["family", detection.RuleName] = "family",
        min_boxes: int = 36,
        max_boxes: int = 36,
        boxes: Literal["detected", "given", "cells"] = "detected",
        nms: float | None = None,
        confidence: float | None = None,
        class_probs: detection.ClassProbs = "none",
        attributes: bool = True,
        short: int = 0,
        long: int = 0,
        resize: Literal["family", detection.Resize] = "family",
        mean: tuple[float, float, float] | None = None,
        deviation: tuple[float, float, float] | None = None,
        proposals_before: int = 0,
        proposals: int = 0,
        proposal_nms: float = 0.7,
        resolution: int = 0,
        sampling: Annotated[int, Field(ge=0, le=64)] | None = None,
        limit: int = 0,
        depth: int = 101,
        cardinality: int = 0,
        width: int = 0,
        pyramid: int | None = None,
        seed: int = 0,
        batch_size: int = 1,
    ) -> None:
        self.parameters = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        if not 0 <= min_boxes <= max_boxes or max_boxes < 1:
            got = f"min_boxes {min_boxes}, max_boxes {max_boxes}"
            raise UsageError("min_boxes and max_boxes disagree", got=got, expected="0 <= min_boxes <= max_boxes")
        options = NetworkOptions(family, depth, cardinality, width, pyramid, resolution, sampling, seed)
        self.detector, self.report = load_detector(weights, options)
        usual, generator = self.detector.family, self.detector.proposal_generator
        before, after = proposals_before or usual.before, proposals or usual.after
        generator.family, generator.threshold = replace(usual, before=before, after=after), proposal_nms
        self.detector.eval().requires_grad_(False)
        self.detector.fold()
        self.rule = detection.make_rule(usual.rule if rule == "family" else rule, min_boxes, max_boxes, nms, confidence)
        self.boxes, self.class_probs, self.attributes, self.batch_size = boxes, class_probs, attributes, batch_size
        self.trained_on, self.label = Path(weights).name if weights else "untrained", f"family {usual.name}"
        self.dim = self.detector.cell_width if boxes == "cells" else self.detector.sizes.dim
        self.deviation = deviation or (1.0, 1.0, 1.0)
        self.preparation = detection.DetectorPreparation(
            short=short or usual.short,
            long=long or usual.long,
            boxes="none" if boxes == "detected" else boxes,
            limit=limit or None,
            resize=usual.resize if resize == "family" else resize,
            mean=(mean[0], mean[1], mean[2]) if mean else usual.mean,
        )

    @classmethod
    def network_of(cls, tensors: Mapping[str, Tensor], **options: Any) -> detection.Network:
        return detection.Network(*fitting_detector(tensors, "checkpoint", NetworkOptions(**options)), families.UNNEEDED)

    def provenance(self) -> dict[str, Any]:
        versions = {"vlcli": __version__, "torch": torch.__version__, "torchvision": torchvision.__version__}
        facts = super().provenance() | {"family": self.detector.family.name, "versions": versions}
        facts["parameters"]["sampling"] = self.detector.roi_heads.sampling
        return facts

    def pixels(self, batch: list[detection.Prepared]) -> Tensor:
        pixels = torch.stack([item.pixels for item in batch]).to(self.device, non_blocking=True)
        return pixels / pixels.new_tensor(self.deviation).view(1, 3, 1, 1)
