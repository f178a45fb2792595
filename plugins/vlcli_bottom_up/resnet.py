"""ResNet and ResNeXt stages under detectron2's names, and the feature pyramid (Lin et al. 2017)."""

from collections import OrderedDict
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d

from vlcli_bottom_up.families import NORM_EPS, Architecture, Family


class NormedConv(nn.Conv2d):
    """A convolution and its frozen batch normalisation."""

    def __init__(self, inputs: int, outputs: int, kernel: int, **options: Any) -> None:
        super().__init__(inputs, outputs, kernel, bias=False, **options)
        self.norm: nn.Module = FrozenBatchNorm2d(outputs, eps=NORM_EPS)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.norm(super().forward(x)))

    @torch.no_grad()
    def fold(self) -> None:
        """Work the normalisation, which never changes, into the convolution: one pass over the map instead of two."""
        if isinstance(self.norm, FrozenBatchNorm2d):
            scale = self.norm.weight * (self.norm.running_var + self.norm.eps).rsqrt()
            self.weight.mul_(scale[:, None, None, None])
            self.bias = nn.Parameter(self.norm.bias - self.norm.running_mean * scale, requires_grad=False)
            self.norm = nn.Identity()


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 with a shortcut."""

    def __init__(
        self, inputs: int, inner: int, outputs: int, *, stride: int, groups: int, dilation: int, stride_in_1x1: bool
    ) -> None:
        super().__init__()
        first, second = (stride, 1) if stride_in_1x1 else (1, stride)
        self.shortcut = NormedConv(inputs, outputs, 1, stride=stride) if inputs != outputs else None
        self.conv1 = NormedConv(inputs, inner, 1, stride=first)
        self.conv2 = NormedConv(inner, inner, 3, stride=second, padding=dilation, dilation=dilation, groups=groups)
        self.conv3 = NormedConv(inner, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        # (N, inputs, h, w) -> (N, outputs, h / stride, w / stride)
        inner = F.relu_(self.conv2(F.relu_(self.conv1(x))))
        return F.relu_(self.conv3(inner) + (x if self.shortcut is None else self.shortcut(x)))


def stage(sizes: Architecture, number: int, family: Family, dilated: bool = False) -> nn.Sequential:
    """Stage ``number`` (2 to 5) of the network; a dilated one keeps its input's resolution."""
    inner, outputs = sizes.inner * 2 ** (number - 2), sizes.out * 2 ** (number - 2)
    inputs = sizes.stem if number == 2 else outputs // 2
    early = sizes.groups == 1 if family.stride_in_1x1 is None else family.stride_in_1x1
    options: dict[str, Any] = {"groups": sizes.groups, "dilation": 2 if dilated else 1, "stride_in_1x1": early}
    first = Bottleneck(inputs, inner, outputs, stride=1 if number == 2 or dilated else 2, **options)
    count = sizes.blocks[number - 2] - 1
    return nn.Sequential(first, *(Bottleneck(outputs, inner, outputs, stride=1, **options) for _ in range(count)))


class ResNet(nn.Module):
    """The stem (7x7 convolution and pooling, stride 4) and stages 2 to ``last``."""

    def __init__(self, sizes: Architecture, family: Family, last: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(OrderedDict(conv1=NormedConv(3, sizes.stem, 7, stride=2, padding=3)))
        self.pool = nn.MaxPool2d(3, 2, padding=0 if family.caffe_pool else 1, ceil_mode=family.caffe_pool)
        self.last = last
        for number in range(2, last + 1):
            self.add_module(f"res{number}", stage(sizes, number, family))

    def forward(self, x: Tensor) -> list[Tensor]:
        x, maps = self.pool(F.relu_(self.stem(x))), []
        for number in range(2, self.last + 1):
            x = self.get_submodule(f"res{number}")(x)
            maps.append(x)
        return maps


class Pyramid(nn.Module):
    """Five maps of equal width, strides 4 to 64, from a ResNet's four."""

    def __init__(self, sizes: Architecture, family: Family) -> None:
        super().__init__()
        self.bottom_up = ResNet(sizes, family, last=5)
        for number in range(2, 6):
            channels = sizes.out * 2 ** (number - 2)
            self.add_module(f"fpn_lateral{number}", nn.Conv2d(channels, sizes.pyramid, 1))
            self.add_module(f"fpn_output{number}", nn.Conv2d(sizes.pyramid, sizes.pyramid, 3, padding=1))

    def forward(self, x: Tensor) -> list[Tensor]:
        # (B, 3, H, W), sides multiples of 32 -> five maps (B, C, H / s, W / s), finest first
        bottom = self.bottom_up(x)
        inner = self.get_submodule("fpn_lateral5")(bottom[-1])
        maps = [self.get_submodule("fpn_output5")(inner)]
        for number in (4, 3, 2):
            lateral = self.get_submodule(f"fpn_lateral{number}")(bottom[number - 2])
            inner = lateral + F.interpolate(inner, scale_factor=2.0, mode="nearest")
            maps.insert(0, self.get_submodule(f"fpn_output{number}")(inner))
        return [*maps, F.max_pool2d(maps[-1], 1, 2)]  # the coarsest serves proposals only
