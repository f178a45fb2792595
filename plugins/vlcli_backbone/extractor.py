"""Extracts features of given boxes, or of a grid, with any image classifier (``backbone``)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import timm
import torch
import torchvision
from pydantic import Field
from torch import Tensor

from vlcli import __version__, detection
from vlcli.features import Record

SHORT = 600


class BackboneExtractor(detection.Extractor):
    """Region features at given boxes or on a grid, from a ResNet or any timm backbone with RoIAlign.

    Args:
        arch: ``resnet50`` and other torchvision ResNets, a timm model, or ``tiny-conv``.
        weights: local safetensors file or tensors-only checkpoint; None for random weights from ``seed``.
        layout: of a ResNet, ``torchvision`` or ``caffe``.
        head: ``c5`` (RoIAlign on the map after the last stage), ``c4-res5`` (last stage on each region) or ``final``
            (RoIAlign on the map that a timm model's classifier pools: EfficientNet's 1,280 channels).
        short: pixels of the resized image's shorter side; 0 keeps the size, None is the input size that a timm model
            was made for, and 600 for others.
        long: most pixels of its longer side; 0 for no limit.
        boxes: ``given``, ``grid``, ``given-or-grid``, or ``cells``: the cells of the last map themselves, each a region
            (Jiang et al. 2020's grid features).
        grid: rows and columns of the grid.
        limit: most boxes of an image, by score; 0 for all.
        resolution: RoIAlign's cells per side; 0 for the head's own (7 or 14).
        sampling: RoIAlign's samples per cell side; 0 adapts.
        precision: ``float32``, or ``bf16`` and ``fp16`` autocast.
        batch_size: images at a time where the stage does not say.
        seed: of random weights.
    """

    paper = "He et al. 2016, Deep Residual Learning; He et al. 2017, Mask R-CNN; Jiang et al. 2020, grid features"

    def __init__(
        self,
        *,
        arch: str = "resnet50",
        weights: str | None = None,
        layout: Literal["torchvision", "caffe"] = "torchvision",
        head: detection.Head = "c5",
        short: Annotated[int, Field(ge=0, le=20_000)] | None = None,
        long: int = 1000,
        boxes: Literal["given", "grid", "given-or-grid", "cells"] = "given",
        grid: tuple[int, int] = (6, 6),
        limit: int = 36,
        resolution: int = 0,
        sampling: int = 2,
        precision: Literal["float32", "bf16", "fp16"] = "float32",
        batch_size: int = 4,
        seed: int = 0,
    ) -> None:
        self._parameters = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        self.precision, self.batch_size = precision, batch_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            options = {"arch": arch, "layout": layout, "head": head, "resolution": resolution, "sampling": sampling}
            self.network = detection.RegionBackbone(**options)  # type: ignore[arg-type]
        self.network.eval().requires_grad_(False)
        self.report = self.network.load(weights) if weights else None
        self.trained_on = Path(weights).name if weights else "untrained"
        self.dim = self.network.dim
        fixed = self.network.fixed_size
        if short is None:
            short = (0 if fixed else self.network.own_size) or SHORT
        self._parameters["short"] = short
        multiple = self.network.stride if self.network.kind == "timm" and not fixed else 1
        size, most = (fixed or short, long), limit or None
        self.preparation = detection.Preparation(*size, boxes, grid, most, multiple=multiple, square=bool(fixed))

    @classmethod
    def rehearse(cls, parameters: Mapping[str, Any]) -> None:
        names = ("arch", "layout", "head", "resolution", "sampling")
        detection.RegionBackbone(**{name: parameters[name] for name in names})

    def to(self, device: str | torch.device) -> Self:
        super().to(device)
        layout = torch.channels_last if self.device.type == "cuda" else torch.contiguous_format
        self.network.to(self.device, memory_format=layout)  # type: ignore[call-overload]  # torch lists no such overload
        return self

    def notes(self) -> list[str]:
        if self.report is None:
            return [f"{self._parameters['arch']}: untrained, random weights from seed {self._parameters['seed']}"]
        return [str(self.report)]

    def provenance(self) -> dict[str, Any]:
        # Neither where the file lies nor how many images go at a time changes a feature; its hash does.
        shown = {key: value for key, value in self._parameters.items() if key not in ("weights", "batch_size")}
        return {
            "extractor": "backbone",
            "parameters": {key: list(v) if isinstance(v, tuple) else v for key, v in shown.items()},
            "weights": self.trained_on,
            "weights_sha256": self.report.sha256 if self.report else "",
            "trained_on": self.trained_on,
            "boxes": self.preparation.boxes,
            "versions": {
                "vlcli": __version__,
                "torch": torch.__version__,
                "torchvision": torchvision.__version__,
                "timm": timm.__version__,
            },
        }

    def extract(self, batch: list[detection.Prepared]) -> list[Record]:
        pixels = torch.stack([item.pixels for item in batch]).to(self.device, non_blocking=True).float()
        if self.preparation.boxes == "cells":
            return self._cells(batch, pixels)
        boxes = [item.scaled_boxes().to(self.device, non_blocking=True) for item in batch]
        with self._autocast():
            rows = self.network(pixels, boxes)  # (sum N, D)
        features: np.ndarray = rows.float().cpu().numpy()
        ends = np.cumsum([len(box) for box in boxes])[:-1]
        return [detection.to_record(item, part) for item, part in zip(batch, np.split(features, ends), strict=True)]

    def _cells(self, batch: list[detection.Prepared], pixels: Tensor) -> list[Record]:
        with self._autocast():
            maps = self.network.last_map(pixels).permute(0, 2, 3, 1)  # (B, h, w, D)
        stride = self.network.cell_stride(pixels, maps.shape[1:3])
        cells = zip(batch, maps, strict=True)
        return [detection.cell_record(i, cell, detection.MapGeometry(stride, i.scale)) for i, cell in cells]

    def _autocast(self) -> torch.autocast:
        dtype = torch.float16 if self.precision == "fp16" else torch.bfloat16
        return torch.autocast(self.device.type, dtype, enabled=self.precision != "float32")
