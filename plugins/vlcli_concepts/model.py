"""Encodes pictures as instances for multiple-instance learning: regions or cells of a convolutional grid."""

from __future__ import annotations

from typing import Annotated, Literal, cast

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional

from vlcli.detection import CAFFE_MEAN, CLASSIFIERS, IMAGENET_MEAN_255, IMAGENET_STD_255, RegionBackbone
from vlcli.nn import DataSpec, EncoderOutput, Images, InputSpec, Layout, Model, Recorder
from vlcli.registry import Between

WIDTH = 4096


class Vgg16Cells(nn.Module):
    """VGG-16 whose first two linear layers are convolutions: 565 x 565 pixels become 12 x 12 cells.

    Pooling rounds up, as Caffe's does; fc6 is 7 x 7 without padding. ``layout`` is ``caffe`` (BGR in 0..255 minus the
    mean) or ``torchvision`` (scaled RGB).
    """

    def __init__(self, layout: str = "caffe", dropout: float = 0.5) -> None:
        super().__init__()
        self.layout = layout
        self.features = torchvision.models.vgg16(weights=None).features
        for layer in self.features:
            if isinstance(layer, nn.MaxPool2d):
                layer.ceil_mode = True
        self.fc6 = nn.Conv2d(512, WIDTH, 7)
        self.fc7 = nn.Conv2d(WIDTH, WIDTH, 1)
        self.dropout = nn.Dropout(dropout)
        mean, std = (CAFFE_MEAN, (1.0,) * 3) if layout == "caffe" else (IMAGENET_MEAN_255, IMAGENET_STD_255)
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    mean: Tensor
    std: Tensor

    def feature_map(self, images: Tensor) -> Tensor:
        """Encodes RGB in 0..255 (B, 3, H, W) as cells (B, 4096, h, w)."""
        x = (images - self.mean) / self.std
        x = self.features(x.flip(1) if self.layout == "caffe" else x)
        x = self.dropout(self.fc6(x).relu())
        return cast("Tensor", self.dropout(self.fc7(x).relu()))


def from_classifier(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], int]:
    """Renames torchvision's VGG-16 tensors; returns them and how many linear layers became convolutions."""
    convolutions = {"classifier.0": ("fc6", (WIDTH, 512, 7, 7)), "classifier.3": ("fc7", (WIDTH, WIDTH, 1, 1))}
    renamed, changed = {}, 0
    for name, value in state.items():
        head, _, tail = name.rpartition(".")
        if head in convolutions:
            layer, shape = convolutions[head]
            renamed[f"{layer}.{tail}"] = value.reshape(shape) if tail == "weight" else value
            changed += tail == "weight"
        elif head != "classifier.6":
            renamed[name] = value
    return renamed, changed


VGG = "vgg16"


class NoisyOr(Model):
    """Instances of a picture for multiple-instance learning: region features of any store, or a network's grid cells.

    The objective ``concepts`` scores words for each instance and joins the scores by noisy-OR.

    Args:
        data_spec: ``region_dim`` where instances are regions.
        instances: ``regions`` of a feature store, or ``pixels``.
        arch: with pixels: ``vgg16`` (the publication's, convolutional fc6 and fc7), or a torchvision ResNet, timm model
            or ``tiny-conv``, whose last map is the grid.
        layout: of VGG-16 and ResNets: ``caffe`` or ``torchvision``, as their weights need.
        image_size: side in pixels of the square that pictures are stretched to, or scaled to fit into.
        fit: ``stretch``; ``inside`` keeps proportions and pads the square with the mean, and cells of padding do not
            count; ``published`` counts them, as the authors' network did.
        width: size of a layer between region features and words; 0 for none.
        dropout: of the instances.
    """

    paper = "Fang et al. 2015, From Captions to Visual Concepts and Back, section 3 (Zhang et al. 2005: noisy-OR)"
    capabilities = frozenset({"image"})

    def __init__(
        self,
        data_spec: DataSpec,
        *,
        instances: Literal["regions", "pixels"] = "regions",
        arch: str = VGG,
        layout: Literal["torchvision", "caffe"] = "caffe",
        image_size: int = 565,
        fit: Literal["stretch", "inside", "published"] = "inside",
        width: Annotated[int, Between(0, 65_536)] = 0,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(data_spec)
        self.instances, self.image_size, self.fit = instances, image_size, fit
        self.trunk: Vgg16Cells | RegionBackbone | None = None
        channels = data_spec.region_dim
        if instances == "pixels" and arch == VGG:
            self.trunk, channels = Vgg16Cells(layout, dropout), WIDTH
        elif instances == "pixels":
            resnet = arch.startswith(("resnet", "resnext", "wide_resnet"))
            self.trunk = RegionBackbone(arch=arch, layout=layout if resnet else "torchvision")
            channels = self.trunk.dim
        self.project = nn.Linear(channels, width) if width else None
        self.dropout = nn.Dropout(dropout if width or arch != VGG or instances == "regions" else 0.0)
        self.width = width or channels
        # A model without a layer still has a device.
        self.register_buffer("here", torch.zeros(()), persistent=False)

    @property
    def dim(self) -> int:
        return self.width

    def train(self, mode: bool = True) -> NoisyOr:
        """Sets the mode, except of batch normalisation, which keeps the statistics of published weights."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def input_spec(self) -> InputSpec:
        if self.trunk is None:
            return InputSpec(regions=True)
        side, mean, std = self.image_size, (0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255)
        if self.fit == "stretch":
            return InputSpec(pixels=True, size=(side, side), mean=mean, std=std)
        return InputSpec(pixels=True, short=side, long=side, mean=mean, std=std)

    def encode_image(self, images: Images, record: Recorder | None = None) -> EncoderOutput:
        if self.trunk is not None:
            rows, layout = self._cells(images, self.trunk)
        else:
            regions = images.regions_for("noisy-or")
            rows, layout = regions.features, Layout.for_boxes(regions.boxes, regions.mask)  # (M, J, D)
        if self.project is not None:
            rows = self.project(rows).relu()
        return EncoderOutput(self.dropout(rows), layout)

    def _cells(self, images: Images, trunk: Vgg16Cells | RegionBackbone) -> tuple[Tensor, Layout]:
        pixels = images.pixels_for("noisy-or")
        real = torch.ones_like(pixels[:, 0], dtype=torch.bool)
        if images.pixels is not None and images.pixels.mask is not None:
            real = images.pixels.mask
        if self.fit != "stretch":  # padded to the square with the mean, which the network's normalisation makes 0
            more = [0, self.image_size - pixels.shape[-1], 0, self.image_size - pixels.shape[-2]]
            real, pixels = functional.pad(real, more), functional.pad(pixels, more)
            pixels = torch.where(real[:, None], pixels, trunk.mean)
        maps = trunk.feature_map(pixels)  # (M, D, h, w)
        boxes, mask = _cell_boxes(maps.shape[-2:], real)
        if self.fit == "published":
            mask = torch.ones_like(mask)
        return maps.flatten(2).transpose(1, 2), Layout.for_boxes(boxes, mask)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        if self.trunk is None or any(name.startswith("trunk.") for name in state):
            return state
        held = {n.split("body.", 1)[1]: v for n, v in state.items() if n.startswith("body.") or ".body." in n}
        if isinstance(self.trunk, Vgg16Cells):
            renamed, changed = from_classifier(state)
            report.append(f"{changed} linear layers of VGG-16 as convolutions")
            return {f"trunk.{name}": value for name, value in renamed.items()}
        unneeded = tuple(name.split(".")[0] + "." for name in CLASSIFIERS)
        kept = held or {n: v for n, v in state.items() if not n.startswith(unneeded)}
        return {f"trunk.body.{name}": value for name, value in kept.items()}


def _cell_boxes(grid: torch.Size, real: Tensor) -> tuple[Tensor, Tensor]:
    # The cells' boxes (M, J, 4) relative to the pictures' real parts, and a mask of those inside (M, J).
    rows, columns = grid
    height, width = real.shape[-2:]
    sides = [torch.arange(count, device=real.device) / count for count in (rows, columns)]
    y, x = torch.meshgrid(*sides, indexing="ij")
    tiles = torch.stack([x, y, x + 1 / columns, y + 1 / rows], -1).reshape(1, -1, 4)  # in shares of the frame
    shares = torch.stack([real.any(1).sum(-1) / width, real.any(2).sum(-1) / height], -1)  # (M, 2): x, y
    boxes = (tiles / shares.repeat(1, 2)[:, None]).clamp(max=1)
    return boxes, (boxes[..., 2] > boxes[..., 0]) & (boxes[..., 3] > boxes[..., 1])
