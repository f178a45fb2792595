"""Extracts patches, map cells or given boxes of any vision tower or backbone of transformers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, cast

import numpy as np
from pydantic import Field
from torch import Tensor
from torchvision.ops import roi_align

from vlcli.detection import Prepared, cell_record, to_record
from vlcli.features import Record
from vlcli_hf.folder import FolderExtractor, autocast, image_processor
from vlcli_hf.pictures import ProcessorPreparation, Shown, stacked, whole_pictures
from vlcli_hf.towers import Tower


class TransformersExtractor(FolderExtractor):
    """Patches or map cells of a vision tower or backbone of transformers: DINOv2, DINOv3, SigLIP, SigLIP 2, CLIP, MAE.

    The model and its image processor come from one folder, as ``save_pretrained`` writes it. Each patch (or cell of a
    convolutional map) is a region; class tokens and registers are left out. Given boxes are pooled by RoIAlign.

    Args:
        boxes: ``cells`` (each patch or cell of the map is a region), ``given``, ``grid`` or ``given-or-grid``.
        grid: rows and columns of the grid.
        limit: most given boxes of an image, by score; 0 for all.
        layer: whose hidden states: -1 is the output of the tower, -2 the states before its last layer, and so on.
        image_size: height and width to which whole pictures are resized; None for what the image processor does, which
            may crop (DINOv2 and CLIP see the centre). Given boxes are always pooled from whole pictures.
        resolution: RoIAlign's cells per side of a box.
        sampling: RoIAlign's samples per side of a cell; 0 adapts to the box.
    """

    paper = "Wolf et al. 2020, Transformers; Oquab et al. 2024, DINOv2; Zhai et al. 2023, SigLIP"
    name: ClassVar[str] = "transformers"

    def __init__(
        self,
        *,
        weights: str | None = None,
        hub: str | None = None,
        boxes: Literal["cells", "given", "grid", "given-or-grid"] = "cells",
        grid: tuple[int, int] = (6, 6),
        limit: int = 36,
        layer: Annotated[int, Field(le=-1)] = -1,
        image_size: tuple[int, int] | None = None,
        resolution: Annotated[int, Field(ge=1)] = 7,
        sampling: int = 2,
        precision: Literal["float32", "bf16", "fp16"] = "float32",
        batch_size: int = 8,
    ) -> None:
        super().__init__(locals())
        self.network = Tower(self.folder, layer)
        self.resolution, self.sampling, self.precision = resolution, sampling, precision
        self.dim = self.network.dim
        processor = image_processor(self.folder)
        if image_size or boxes != "cells":
            processor = whole_pictures(processor, image_size)
        cells = (grid[0], grid[1])
        self.preparation = ProcessorPreparation(0, 0, boxes, cells, limit or None, processor=processor)

    def notes(self) -> list[str]:
        down, across = (f"{side:g}" for side in self.network.stride)
        regions = f"patches or cells of {down} x {across} pixels" if self._cells else "RoIAlign of boxes"
        return [f"transformers: {self.model_class} of {self.folder}, {self.dim} numbers a region, {regions}"]

    @property
    def _cells(self) -> bool:
        return self.preparation.boxes == "cells"

    def extract(self, batch: list[Prepared]) -> list[Record]:
        items = cast("list[Shown]", batch)
        patches = [item.patches for item in items] if any(items[0].patches) else None
        with autocast(self.device, self.precision):
            maps = self.network(stacked(batch, self.device), patches)  # of each picture (h, w, D)
        return [self._record(item, rows) for item, rows in zip(items, maps, strict=True)]

    def _record(self, item: Shown, rows: Tensor) -> Record:
        geometry = item.geometry(self.network.stride)
        if self._cells:
            return cell_record(item, rows, geometry)
        boxes = item.scaled_boxes().to(rows) / rows.new_tensor(self.network.stride[::-1] * 2)  # in cells
        pooled = roi_align(
            rows.float().permute(2, 0, 1)[None], [boxes.float()], self.resolution, 1.0, self.sampling, True
        )
        features: np.ndarray = pooled.mean((2, 3)).cpu().numpy()
        return to_record(item, features)


__all__ = ["TransformersExtractor"]
