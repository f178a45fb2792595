"""Computes the grid of VGG-16 cells of the published concept network."""

from __future__ import annotations

import torch
import torchvision
from torch import Tensor, nn

from vlcli.detection import CAFFE_MEAN, IMAGENET_MEAN_255, IMAGENET_STD_255

WIDTH = 4096


class Vgg16Cells(nn.Module):
    """VGG-16 whose first two linear layers are convolutions, so that a picture of any size is a grid of cells.

    A square of 565 pixels becomes 12 x 12 cells (pooling rounds up, as Caffe's does; fc6 is 7 x 7 without padding).

    Args:
        layout: ``caffe``: BGR in 0..255 minus the mean; ``torchvision``: scaled RGB.
        dropout: after each of the two layers.
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
        """Encode RGB in 0..255 (B, 3, H, W) as cells (B, 4096, h, w)."""
        x = (images - self.mean) / self.std
        x = self.features(x.flip(1) if self.layout == "caffe" else x)
        x = self.dropout(self.fc6(x).relu())
        out: Tensor = self.dropout(self.fc7(x).relu())
        return out


def from_classifier(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], int]:
    """Rename torchvision's VGG-16 tensors; return them and the number of linear layers that became convolutions."""
    renamed, changed = {}, 0
    for name, value in state.items():
        head, _, tail = name.rpartition(".")
        if head == "classifier.0":
            renamed[f"fc6.{tail}"] = value.reshape(WIDTH, 512, 7, 7) if tail == "weight" else value
        elif head == "classifier.3":
            renamed[f"fc7.{tail}"] = value.reshape(WIDTH, WIDTH, 1, 1) if tail == "weight" else value
        elif head != "classifier.6":
            renamed[name] = value
        changed += head in ("classifier.0", "classifier.3") and tail == "weight"
    return renamed, changed
