"""Pools features of boxes from any of torchvision's detectors: the input of its box head, or its feature maps."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import grid_sample
from torch.nn.utils.rnn import pad_sequence
from torchvision.ops import MultiScaleRoIAlign

RESOLUTION = 7


@dataclass
class DetectorMaps:
    """Maps of a detector's backbone by name (M, C, h, w), and the pictures' heights and widths at its input."""

    maps: dict[str, Tensor] = field(default_factory=dict)
    sizes: list[tuple[int, int]] = field(default_factory=list)


class SampledRoIAlign(MultiScaleRoIAlign):  # type: ignore[misc]  # torchvision has no types
    """RoIAlign on one map of ``stride``; trains by bilinear sampling on a processor, where its gradient is faster."""

    def __init__(self, name: str, cells: int, sampling: int, stride: int) -> None:
        super().__init__([name], cells, sampling)
        self.cells, self.sampling, self.stride = cells, sampling, stride

    def forward(self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: list[tuple[int, int]]) -> Tensor:
        (features,) = (x[name] for name in self.featmap_names)  # (M, C, H, W)
        if not self.sampling or features.device.type != "cpu" or not torch.is_grad_enabled():
            return cast(Tensor, super().forward(x, boxes, image_shapes))
        kind = torch.promote_types(features.dtype, boxes[0].dtype)  # maps may be of bfloat16, whose places are coarse
        places = pad_sequence(boxes, batch_first=True).to(kind) / self.stride  # (M, N, 4)
        count, samples = places.shape[1], self.cells * self.sampling
        shares = (torch.arange(samples, dtype=kind) + 0.5) / samples
        low, side = places[..., :2], (places[..., 2:] - places[..., :2]).clamp(min=1)
        points = low[:, :, None] + side[:, :, None] * shares[:, None]  # (M, N, S, 2), x and y
        extent = points.new_tensor([features.shape[3], features.shape[2]])
        seen = (points >= -1) & (points <= extent)
        points = points / (extent - 1).clamp(min=1) * 2 - 1
        across, down = points[..., 0][:, :, None, :], points[..., 1][:, :, :, None]
        grid = torch.stack(torch.broadcast_tensors(across, down), -1).flatten(1, 2)  # (M, N * S, S, 2)
        found = grid_sample(features.to(kind), grid, padding_mode="border", align_corners=True)  # (M, C, N * S, S)
        found = found.unflatten(2, (count, samples))
        if not seen.all():  # samples beside the map count as 0
            found = found * (seen[..., :, None, 1] & seen[..., None, :, 0])[:, None]
        if self.sampling > 1:
            found = found.unflatten(4, (self.cells, -1)).unflatten(3, (self.cells, -1)).mean((4, 6))
        means = found.transpose(1, 2).to(features.dtype)
        return torch.cat([rows[: len(one)] for rows, one in zip(means, boxes, strict=True)])  # (sum N, C, cells, cells)


@contextmanager
def watching(network: Any) -> Iterator[DetectorMaps]:
    """Record maps and sizes of the network's next forward."""
    seen = DetectorMaps()

    def note_maps(_module: nn.Module, _inputs: Any, maps: Any) -> None:
        seen.maps = _by_name(maps)

    def note_sizes(_module: nn.Module, _inputs: Any, outputs: Any) -> None:
        seen.sizes = outputs[0].image_sizes

    with ExitStack() as hooks:
        hooks.callback(network.backbone.register_forward_hook(note_maps).remove)
        hooks.callback(network.transform.register_forward_hook(note_sizes).remove)
        yield seen


def _by_name(maps: Any) -> dict[str, Tensor]:
    return {"0": maps} if isinstance(maps, Tensor) else dict(maps)


def look(network: Any, pictures: list[Tensor]) -> DetectorMaps:
    """Run the backbone alone: maps and sizes of pictures (3, H, W) in [0, 1]."""
    images, _ = network.transform(pictures)
    return DetectorMaps(_by_name(network.backbone(images.tensors)), images.image_sizes)


def box_features(network: Any, seen: DetectorMaps, boxes: list[Tensor]) -> Tensor:
    """Return a row for each box: the box head's output where the detector has one, else the mean of RoIAlign's cells.

    ``boxes`` are those of each picture (N, 4), in pixels as the network saw it.
    """
    if hasattr(network, "roi_heads"):
        heads = network.roi_heads
        return cast(Tensor, heads.box_head(heads.box_roi_pool(seen.maps, boxes, seen.sizes)).flatten(1))
    # the finest map and those with as many channels (SSD's differ, a pyramid's do not), four at most
    width = next(iter(seen.maps.values())).shape[1]
    maps = dict([(name, one) for name, one in seen.maps.items() if one.shape[1] == width][:4])
    return cast(Tensor, MultiScaleRoIAlign(list(maps), RESOLUTION, 2)(maps, boxes, seen.sizes).mean((2, 3)))


def scaled(boxes: Tensor, size: tuple[int, int], target: tuple[int, int]) -> Tensor:
    """Return boxes (N, 4) of a picture of ``size`` (height, width) as they are at the size ``target``."""
    height, width = target[0] / size[0], target[1] / size[1]
    return boxes * torch.tensor([width, height, width, height], dtype=boxes.dtype, device=boxes.device)
