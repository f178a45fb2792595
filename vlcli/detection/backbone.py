"""Computes region features with a convolutional or patch backbone and RoIAlign."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Literal, cast

import timm
import torch
import torchvision
from torch import Tensor, nn
from torchvision.ops import roi_align

from vlcli.errors import ComponentError, UsageError
from vlcli.nn.weights import WeightsReport, load_tensors, read_weights

TINY = "tiny-conv"
"""The name of a backbone of five small convolutions, for tests and small worlds."""
TINY_WIDTHS = (16, 32, 64, 96, 128)
"""The output channels of its five convolutions."""
TINY_STRIDES = (2, 2, 1, 2, 1)
CAFFE_MEAN = (123.68, 116.779, 103.939)
"""Mean of RGB in 0..255 of weights trained with Caffe."""
IMAGENET_MEAN_255 = (123.675, 116.28, 103.53)
"""Mean of RGB in 0..255 of ImageNet."""
IMAGENET_STD_255 = (58.395, 57.12, 57.375)
"""Deviation of RGB in 0..255 of ImageNet."""
Head = Literal["c5", "c4-res5", "final"]
"""Which features of a backbone a region gets: of the last map, of the last stage run on the region, or of the end."""
_TIMM_SAYS = (AssertionError, RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, ImportError)
CLASSIFIERS = ("fc.*", "head.*", "classifier.*", "head_dist.*", "norm_pre.*")
"""Tensors of published classifiers that a region feature does not need."""


class RegionBackbone(nn.Module):
    """Region features of a backbone.

    Args:
        arch: a torchvision ResNet (``resnet18`` ... ``resnext101_64x4d``), any timm model with feature maps, or
            ``tiny-conv``, five small convolutions that a CPU trains in a minute.
        layout: of a ResNet. ``torchvision``: stride in the 3x3 convolutions, RGB scaled by mean and deviation;
            ``caffe``: stride in the first 1x1 convolutions, BGR in 0..255 minus the mean (He et al. 2016).
        head: ``c5``: RoIAlign on the map after the last stage, mean over its cells; ``c4-res5``: RoIAlign on the map
            before the last stage, that stage on each region, mean (Ren et al. 2015 as in ResNet detectors; ResNets
            only); ``final``: RoIAlign on the map that a timm model's own classifier pools (EfficientNet's 1,280
            channels, where its last stage has 320).
        resolution: cells per side that RoIAlign makes; 0 for 7 with ``c5`` and 14 with ``c4-res5``.
        sampling: RoIAlign's samples per side of a cell; 0 adapts to the box.

    Attributes:
        body: the backbone, under the names that its published weights use.
        dim: width D of the features.
        stride: pixels per cell of the map that regions are cut from.
        fixed_size: the side of the only pictures that a timm model takes; 0 for any.
        own_size: the side that a timm model was made for; 0 of others.

    Raises:
        ComponentError: there is no such backbone, or it gives no map of features.
        UsageError: it has no such head or layout.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        *,
        arch: str = "resnet50",
        layout: Literal["torchvision", "caffe"] = "torchvision",
        head: Head = "c5",
        resolution: int = 0,
        sampling: int = 2,
    ) -> None:
        super().__init__()
        self.arch, self.layout, self.head, self.sampling = arch, layout, head, sampling
        self.resolution = resolution or (14 if head == "c4-res5" else 7)
        self.kind = _kind(arch)
        if self.kind != "resnet" and (head == "c4-res5" or layout != "torchvision"):
            raise UsageError(f"{arch} has neither the head c4-res5 nor the layout caffe", expected="a ResNet for these")
        if self.kind != "timm" and head == "final":
            raise UsageError(f"{arch} has no head final", expected="a timm model for it, else c5")
        self.fixed_size = self.own_size = 0
        self.body: Any  # of torchvision or timm, which have no types
        mean: Sequence[float] = IMAGENET_MEAN_255
        std: Sequence[float] = IMAGENET_STD_255
        if self.kind == "tiny":
            self.body, self.dim, self.stride = tiny_conv(), TINY_WIDTHS[-1], 8
            mean = std = (127.5,) * 3
        elif self.kind == "resnet":
            self.body = resnet(arch, layout)
            norms = [part for part in self.body.layer4[-1].children() if isinstance(part, nn.BatchNorm2d)]
            self.dim, self.stride = norms[-1].num_features, 16 if head == "c4-res5" else 32
            if layout == "caffe":
                mean, std = CAFFE_MEAN, (1.0,) * 3
        else:
            with _in_words(arch):
                self.body = _timm(arch)
                config = self.body.pretrained_cfg
                self.own_size = int(config["input_size"][-1])
                # Swin of timm 1.0.22 takes the option dynamic_img_size and still asks for its one size.
                strict = getattr(getattr(self.body, "patch_embed", None), "strict_img_size", True)
                self.fixed_size = self.own_size if strict and config.get("fixed_input_size") else 0
                with torch.no_grad():
                    shape = _last_map(self.body.eval(), torch.zeros(1, 3, self.own_size, self.own_size), head).shape
                self.body.train()
                self.dim, self.stride = int(shape[1]), self.own_size // int(shape[-1])
            mean, std = ([255 * value for value in config[name]] for name in ("mean", "std"))
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    def forward(self, images: Tensor, boxes: Sequence[Tensor]) -> Tensor:
        """Return features of every box, image after image (sum N_i, D).

        Args:
            images: RGB in 0..255 (B, 3, H, W).
            boxes: per image x1 y1 x2 y2 in pixels of ``images`` (N_i, 4).
        """
        maps = self.feature_map(images)  # (B, C, H / stride, W / stride)
        scale = maps.shape[-1] / images.shape[-1] if self.kind == "timm" else 1.0 / self.stride
        rois = [box.to(maps.dtype) for box in boxes]
        regions = roi_align(maps, rois, self.resolution, scale, self.sampling, aligned=True)  # (N, C, r, r)
        if self.head == "c4-res5":
            regions = self.body.layer4(regions)  # (N, D, r / 2, r / 2)
        return cast(Tensor, regions.mean(dim=(2, 3)))

    def _normalised(self, images: Tensor) -> Tensor:
        x = (images.to(self.mean.dtype) - self.mean) / self.std
        return x.flip(1) if self.layout == "caffe" else x

    def feature_map(self, images: Tensor) -> Tensor:
        """Return the map that regions are cut from (B, C, h, w), of RGB in 0..255."""
        x = self._normalised(images)
        if self.kind == "timm":
            return _last_map(self.body, x, self.head)
        if self.kind == "resnet":
            return next(islice(resnet_stages(self.body, x), 3 if self.head == "c5" else 2, None))
        return cast(Tensor, self.body(x))

    def last_map(self, images: Tensor) -> Tensor:
        """Return the map whose cells are regions (B, D, h, w); with ``c4-res5`` the last stage of whole pictures."""
        maps = self.feature_map(images)
        return cast(Tensor, self.body.layer4(maps)) if self.head == "c4-res5" else maps

    def cell_stride(self, images: Tensor, cells: Sequence[int]) -> tuple[float, float]:
        """Return height and width of a cell of :meth:`last_map` (h, w cells) in pixels of ``images`` (B, 3, H, W)."""
        if self.kind != "timm":
            return (float(2 * self.stride if self.head == "c4-res5" else self.stride),) * 2
        # timm's reduction of its last map, where the map has as many cells as that makes of the input
        reduction = int((getattr(self.body, "feature_info", None) or [{}])[-1].get("reduction", 0))
        sides = zip(images.shape[-2:], cells, strict=True)
        height, width = (reduction if reduction and -(-side // reduction) == n else side / n for side, n in sides)
        return float(height), float(width)

    def stages(self, images: Tensor) -> list[Tensor]:
        """Return the maps after all stages (B, C, h, w), finest first: of a ResNet strides 4, 8, 16 and 32."""
        x = self._normalised(images)
        if self.kind == "resnet":
            return list(resnet_stages(self.body, x))
        if self.kind == "timm":
            with _in_words(self.arch):
                return list(self.body.forward_intermediates(x, output_fmt="NCHW", intermediates_only=True))
        return list(accumulate(self.body, lambda maps, layer: layer(maps), initial=x))[1::2]

    @torch.no_grad()
    def stage_channels(self) -> tuple[int, ...]:
        """Return the channels of these maps."""
        side, training = self.fixed_size or 64, self.training
        maps = self.eval().stages(torch.zeros(1, 3, side, side, device=self.mean.device))
        self.train(training)
        return tuple(one.shape[1] for one in maps)

    def load(self, path: str | Path) -> WeightsReport:
        """Load local weights completely; see :func:`vlcli.nn.weights.load_tensors`.

        Takes a backbone's published file and the file of any trained model that holds a ``RegionBackbone``.
        """
        tensors = read_weights(path)
        held = {name: name.split("body.", 1)[1] for name in tensors if name.startswith("body.") or ".body." in name}
        renamed = {held.get(name, name): value for name, value in tensors.items()}
        unneeded = [name for name in tensors if name not in held] if held else CLASSIFIERS
        return load_tensors(self.body, renamed, path, unneeded)


def _kind(arch: str) -> str:
    if arch == TINY:
        return "tiny"
    if arch in torchvision.models.list_models() and arch.startswith(("resnet", "resnext", "wide_resnet")):
        return "resnet"
    if arch in timm.list_models() or arch.split(".", maxsplit=1)[0] in timm.list_models():
        return "timm"
    close = ", ".join(timm.list_models(f"*{arch[:6]}*")[:5])
    what, hint = f"there is no backbone {arch!r}", f"close by: {close}" if close else "see timm.list_models()"
    raise ComponentError(what, expected="a torchvision ResNet, timm model or tiny-conv", hint=hint)


def tiny_conv() -> nn.Sequential:
    """Five 3x3 convolutions with group normalisation (no batch statistics), stride 8, 128 channels."""
    layers = []
    for channels, width, stride in zip((3, *TINY_WIDTHS), TINY_WIDTHS, TINY_STRIDES, strict=False):
        conv = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        layers.append(nn.Sequential(conv, nn.GroupNorm(8, width), nn.ReLU(inplace=True)))
    return nn.Sequential(*layers)


def resnet(arch: str, layout: str) -> nn.Module:
    """Return a torchvision ResNet without classifier; ``caffe``: strides in the first convolution of a bottleneck."""
    body: Any = torchvision.models.get_model(arch, weights=None)
    del body.fc
    for block in body.modules() if layout == "caffe" else ():
        if hasattr(block, "conv3") and hasattr(block, "downsample"):
            block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride
    return cast(nn.Module, body)


def resnet_stages(body: Any, x: Tensor) -> Iterator[Tensor]:
    """Yield a torchvision ResNet's maps after its stages: strides 4, 8, 16 and 32."""
    x = body.maxpool(body.relu(body.bn1(body.conv1(x))))
    for stage in (body.layer1, body.layer2, body.layer3, body.layer4):
        x = stage(x)
        yield x


def _timm(arch: str) -> Any:
    with suppress(TypeError):  # only patch models know the last option
        return timm.create_model(arch, pretrained=False, num_classes=0, dynamic_img_size=True)
    return timm.create_model(arch, pretrained=False, num_classes=0)


@contextmanager
def _in_words(arch: str) -> Iterator[None]:
    try:
        yield
    except _TIMM_SAYS as error:
        cause = str(error).split("\n", 1)[0]
        raise ComponentError(
            f"the timm model {arch} cannot be used as a backbone",
            got=f"timm: {type(error).__name__}{': ' if cause else ''}{cause}",
            expected="a model whose last map timm gives with its final norm (forward_intermediates, norm=True)",
            hint="choose another arch: ResNets, ConvNeXt, EfficientNet, ViT, Swin and most others do",
        ) from None


def _last_map(body: Any, x: Tensor, head: str = "c5") -> Tensor:
    if head == "c5" and hasattr(body, "forward_intermediates"):
        options = {"norm": True, "output_fmt": "NCHW", "intermediates_only": True}
        return cast(Tensor, body.forward_intermediates(x, indices=1, **options)[-1])
    maps: Tensor = body.forward_features(x)
    if maps.ndim != 4:
        raise ComponentError(f"{type(body).__name__} gives no feature map", got=f"shape {tuple(maps.shape)}")
    # Some models (Swin) keep the channels last.
    return maps.permute(0, 3, 1, 2) if maps.shape[1] != body.num_features == maps.shape[-1] else maps
