"""Heads for segmentation: a linear one, and UPerNet's, on maps of one or several resolutions."""

import math
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn.batch import Images
from vlcli.nn.model import Model

# Strides of the pyramid made of maps of one resolution (BEiT, appendix; UPerNet)
STRIDES = (4, 8, 16, 32)


class Norm(nn.SyncBatchNorm):
    """Batch normalisation, over the pictures of all processes on GPUs."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.is_cuda else nn.BatchNorm2d.forward(self, x)


class ConvNorm(nn.Sequential):
    """Convolution, normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int, side: int = 1) -> None:
        super().__init__(nn.Conv2d(inputs, outputs, side, padding=side // 2, bias=False), Norm(outputs), nn.ReLU())


def resized(x: Tensor, size: Sequence[int]) -> Tensor:
    """Resize maps bilinearly, corners not aligned."""
    return x if x.shape[-2:] == tuple(size) else F.interpolate(x, list(size), mode="bilinear", align_corners=False)


class Neck(nn.Module):
    """Makes a pyramid of strides 4, 8, 16 and 32 of maps of one ``stride``: finer ones by transposed convolutions."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(self._part(width, stride, wanted) for wanted in STRIDES)

    @staticmethod
    def _part(width: int, stride: int, wanted: int) -> nn.Module:
        parts: list[nn.Module] = []
        while stride > wanted:
            parts += [Norm(width), nn.GELU()] if parts else []
            parts.append(nn.ConvTranspose2d(width, width, 2, stride=2))
            stride //= 2
        return nn.Sequential(*parts) if parts else nn.MaxPool2d(wanted // stride) if wanted > stride else nn.Identity()

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        # four maps (M, C, h, w)
        return [part(one) for part, one in zip(self.parts, maps, strict=True)]


class LightHead(nn.Module):
    """Normalisation and a linear layer on each cell of the last map."""

    def __init__(self, channels: Sequence[int], classes: int) -> None:
        super().__init__()
        self.norm, self.classifier = Norm(channels[-1]), nn.Conv2d(channels[-1], classes, 1)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        # Scores have the shape (M, classes, h, w).
        return cast("Tensor", self.classifier(self.norm(maps[-1])))


class UPerHead(nn.Module):
    """UPerNet: pooled context of the coarsest map, then a feature pyramid, all levels joined at the finest.

    ``channels`` are those of the maps, finest first, ``width`` that inside the head, ``scales`` the sides of the pooled
    maps; ``dropout`` is of whole channels before the classifier.
    """

    paper = "UPerNet, Xiao et al., ECCV 2018, arXiv:1807.10221"

    def __init__(
        self,
        channels: Sequence[int],
        width: int,
        classes: int,
        scales: Sequence[int] = (1, 2, 3, 6),
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.scales = tuple(scales)
        self.pooled = nn.ModuleList(ConvNorm(channels[-1], width) for _ in scales)
        self.context = ConvNorm(channels[-1] + len(self.scales) * width, width, 3)
        self.lateral = nn.ModuleList(ConvNorm(count, width) for count in channels[:-1])
        self.smooth = nn.ModuleList(ConvNorm(width, width, 3) for _ in channels[:-1])
        self.joint = ConvNorm(len(channels) * width, width, 3)
        self.drop, self.classifier = nn.Dropout2d(dropout), nn.Conv2d(width, classes, 1)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        # (M, classes, h, w) at the finest map's resolution
        last = maps[-1]
        seen = [
            resized(part(F.adaptive_avg_pool2d(last, scale)), last.shape[-2:])
            for part, scale in zip(self.pooled, self.scales, strict=True)
        ]
        levels = [part(one) for part, one in zip(self.lateral, maps[:-1], strict=True)]
        levels.append(self.context(torch.cat([last, *seen], 1)))
        for number in reversed(range(len(levels) - 1)):
            levels[number] = levels[number] + resized(levels[number + 1], levels[number].shape[-2:])
        outs = [part(one) for part, one in zip(self.smooth, levels[:-1], strict=True)] + levels[-1:]
        joined = torch.cat([resized(out, outs[0].shape[-2:]) for out in outs], 1)
        return cast("Tensor", self.classifier(self.drop(self.joint(joined))))


class PlainHead(nn.Module):
    """One convolution and a classifier on one map: the auxiliary head beside UPerNet's."""

    paper = "PSPNet, Zhao et al., CVPR 2017 (auxiliary loss)"

    def __init__(self, channels: int, width: int, classes: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.conv, self.drop = ConvNorm(channels, width, 3), nn.Dropout2d(dropout)
        self.classifier = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        # (M, C, h, w) -> (M, classes, h, w)
        return cast("Tensor", self.classifier(self.drop(self.conv(x))))


class Maps(nn.Module):
    """Reads a model's maps: its ``pyramid``, or the hidden states of some layers (ComponentError if it has neither).

    ``layers`` are 1-based; None: the last layer, or four of them evenly (of 12: 3, 6, 9, 12) for ``levels``, a pyramid
    of the layers (UPerNet).
    """

    def __init__(self, model: Model, layers: Sequence[int] | None, levels: bool) -> None:
        super().__init__()
        self.layers: tuple[int, ...] = ()
        self.neck: Neck | None = None
        if "pyramid" in model.capabilities:
            self.channels = model.pyramid_channels()
            return
        size, depth = model.input_spec().size, model.depth
        if model.grid is None or size is None or not depth:
            what = "The model has neither a pyramid of maps nor layers over one grid."
            raise ComponentError(what, where="segmentation", got=type(model).__name__)
        usual = [max(1, round(depth * part / 4)) for part in range(1, 5)] if levels else [depth]
        self.layers = tuple(layers or usual)
        if not all(1 <= number <= depth for number in self.layers) or (levels and len(self.layers) != len(STRIDES)):
            what, expected = "These layers cannot be read.", f"{'four ' if levels else ''}layers from 1 to {depth}"
            raise ComponentError(what, where="segmentation.layers", got=str(list(self.layers)), expected=expected)
        self.channels = (model.dim,) * len(self.layers)
        self.neck = Neck(model.dim, size[0] // model.grid[0]) if levels else None

    def forward(self, model: Model, images: Images) -> list[Tensor]:
        # maps (M, C, h, w), finest first
        if not self.layers:
            return model.pyramid(images)
        before, model.output_hidden_states = model.output_hidden_states, self.layers
        try:
            states = model.encode_image(images)
        finally:
            model.output_hidden_states = before
        assert model.grid is not None
        layers = (states.layers[number][:, -math.prod(model.grid) :] for number in self.layers)
        maps = [torch.unflatten(layer.transpose(1, 2), 2, model.grid) for layer in layers]
        return maps if self.neck is None else self.neck(maps)
