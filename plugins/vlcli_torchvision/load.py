"""Detectors by name, with local weights, or from a training stage; and how their classes are numbered."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models import detection

from vlcli.engine import find_bundle, load_bundle
from vlcli.errors import ComponentError
from vlcli.images import Labels
from vlcli.nn import file_sha256, load_tensors, read_weights
from vlcli_torchvision.detector import FasterRCNN
from vlcli_torchvision.network import modern_names

SCORES = "roi_heads.box_predictor.cls_score.weight"
_UNNAMED = ("__background__", "N/A")  # names in torchvision's lists that no detection can have


@dataclass
class Loaded:
    """A detector of torchvision in evaluation mode, ready to extract.

    Attributes:
        dim: width of a box's features.
        labels: names and published ids of its classes, numbered from 0 without gaps.
        columns: the network's label of each class.
        trained_on: where the weights came from; ``untrained``.
        model: the trained model the network belongs to, if it does.
    """

    network: Any
    arch: str
    dim: int
    labels: Labels
    columns: list[int]
    note: str
    trained_on: str = "untrained"
    sha256: str = ""
    model: FasterRCNN | None = None
    _numbers: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self._numbers = torch.full((max(self.columns) + 2,), -1)  # the class of each of the network's labels
        self._numbers[self.columns] = torch.arange(len(self.columns))

    def numbers(self, labels: Tensor) -> Tensor:
        """Return the classes (N,) of the network's labels; -1 for labels without a class."""
        return self._numbers[labels.clamp(max=len(self._numbers) - 1)]

    def attribute_scores(self, rows: Tensor) -> Tensor | None:
        """Return probabilities (N, A) of attributes, where it was trained on any."""
        return None if self.model is None else self.model.attribute_scores(rows)

    def move(self, device: torch.device) -> None:
        (self.model or self.network).to(device)
        self._numbers = self._numbers.to(device)


def load_detector(arch: str, weights: str | None, classes: int, seed: int) -> Loaded:
    """Load a trained ``faster-rcnn`` where ``weights`` is a training stage's file, else torchvision's ``arch``.

    Raises DataError: the weights are missing, damaged, or of another detector; ComponentError: no such detector.
    """
    folder = find_bundle(Path(weights).parent) if weights else None
    if folder is not None and weights is not None:
        return _trained(folder, Path(weights))
    if arch not in torchvision.models.list_models(module=detection):
        known = ", ".join(torchvision.models.list_models(module=detection))
        raise ComponentError("torchvision has no such detector.", got=arch, expected=known)
    tensors = modern_names(read_weights(weights)) if weights else {}
    classes = 2 if arch.startswith("keypointrcnn") and classes == 91 else classes
    classes = len(tensors[SCORES]) if SCORES in tensors else classes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = torchvision.models.get_model(arch, weights=None, weights_backbone=None, num_classes=classes)
    note, sha256 = f"{arch}: untrained, random weights from seed {seed}", ""
    if weights:
        report = load_tensors(network, tensors, weights)
        note, sha256 = str(report), report.sha256
    columns, labels = _published(arch, classes)
    trained_on = Path(weights).name if weights else "untrained"
    network = _bare(network)
    return Loaded(network, arch, feature_width(network), labels, columns, note, trained_on, sha256)


def _trained(folder: Path, weights: Path) -> Loaded:
    bundle = load_bundle(folder)
    model, spec = bundle.model, bundle.model_spec
    if not isinstance(model, FasterRCNN):
        what, got = "The stage trained no detector of torchvision.", str(spec["name"])
        hint = "name the stage that trained it in `from`, or another extractor"
        raise ComponentError(what, where=str(folder), got=got, expected="faster-rcnn", hint=hint)
    data_spec = bundle.data_spec
    count = data_spec.region_classes
    labels = Labels(data_spec.class_names, data_spec.class_ids or tuple(range(count)), data_spec.attribute_names)
    stage = str(bundle.info.get("stage", folder.parent.name))
    note = f"faster-rcnn ({spec.get('backbone', 'resnet50')}) trained in stage {stage}: {count} classes"
    network, columns = _bare(model.network), list(range(1, count + 1))
    return Loaded(network, "faster-rcnn", model.width, labels, columns, note, stage, file_sha256(weights), model)


def _published(arch: str, classes: int) -> tuple[list[int], Labels]:
    names = list(next(iter(torchvision.models.get_model_weights(arch))).meta["categories"])
    if arch.startswith("keypointrcnn"):
        names = ["__background__", "person"]  # torchvision lists what no detector has: "no person", "person"
    if len(names) != classes:
        return [*range(1, classes)], Labels((), tuple(range(1, classes)))
    columns = [number for number, name in enumerate(names) if name not in _UNNAMED]
    return columns, Labels(tuple(names[number] for number in columns), tuple(columns))


def _bare(network: Any) -> Any:
    if hasattr(network, "roi_heads"):
        network.roi_heads.mask_roi_pool = network.roi_heads.keypoint_roi_pool = None
    return network.eval().requires_grad_(False)


@torch.no_grad()
def feature_width(network: Any) -> int:
    """Return the columns of a box's features: the box head's last layer, else the channels of the finest map."""
    if hasattr(network, "roi_heads"):
        return [part.out_features for part in network.roi_heads.box_head.modules() if isinstance(part, nn.Linear)][-1]
    if hasattr(network.backbone, "out_channels"):
        return int(network.backbone.out_channels)
    return int(next(iter(network.backbone(torch.zeros(1, 3, 320, 320)).values())).shape[1])
