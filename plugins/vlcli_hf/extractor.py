"""Extracts patches, map cells or given boxes of any vision tower or backbone of transformers.

Kinds of towers tell which tokens are no patches; the configuration tells the number of registers. All others are loaded
as ``AutoBackbone``, which gives maps.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torchvision.ops import roi_align

from vlcli.detection import Prepared, cell_record, to_record
from vlcli.errors import ComponentError, DataError
from vlcli.features import Record
from vlcli.foreign import transformers_model, transformers_processor, transformers_type
from vlcli_hf.folder import FolderExtractor, autocast
from vlcli_hf.pictures import ProcessorPreparation, Shown, patch_inputs, stacked, whole_pictures


@dataclass(frozen=True)
class Kind:
    """Class of a tower in transformers, and the layout of its tokens."""

    name: str
    specials: int  # class and distillation tokens before the patches, registers not counted
    interpolates: bool = True  # its forward pass takes ``interpolate_pos_encoding``
    options: tuple[tuple[str, Any], ...] = ()  # of ``from_pretrained``


CLIP = Kind("CLIPVisionModel", 1)
SIGLIP = Kind("SiglipVisionModel", 0)
SIGLIP2 = Kind("Siglip2VisionModel", 0, False)
# Towers whose sequence of tokens is read, by ``model_type`` of their configuration
TOWERS: dict[str, Kind] = {
    "clip": CLIP,
    "clip_vision_model": CLIP,
    "siglip": SIGLIP,
    "siglip_vision_model": SIGLIP,
    "siglip2": SIGLIP2,
    "siglip2_vision_model": SIGLIP2,
    "dinov2": Kind("Dinov2Model", 1, False),
    "dinov2_with_registers": Kind("Dinov2WithRegistersModel", 1, False),
    "dinov3_vit": Kind("DINOv3ViTModel", 1, False),
    "vit_mae": Kind("ViTMAEModel", 1, True, (("mask_ratio", 0.0),)),
    "vit": Kind("ViTModel", 1, True, (("add_pooling_layer", False),)),
    "deit": Kind("DeiTModel", 2, True, (("add_pooling_layer", False),)),
    "ijepa": Kind("IJepaModel", 0, True, (("add_pooling_layer", False),)),
}


class Tower(nn.Module):
    """A tower or backbone with the folder's weights.

    Args:
        layer: which hidden state: -1 is the tower's output, -2 the state before its last layer, and so on.

    Attributes:
        stride: height and width of a patch or cell in pixels of the input.
        what: the class of transformers that was loaded.
    """

    def __init__(self, folder: Path, layer: int = -1) -> None:
        super().__init__()
        self.kind, self.layer = TOWERS.get(transformers_type(folder)), layer
        self.model: Any = _loaded(folder, self.kind, layer)
        self.what, self.config = type(self.model).__name__, self.model.config
        if self.kind is None:
            self.skip, (self.dim, self.stride) = 0, _probe(self.model)
            return
        self.skip = self.kind.specials + int(getattr(self.config, REGISTERS, 0) or 0)
        patch, lowest = _square(self.config.patch_size), -int(self.config.num_hidden_layers) - 1
        self.dim, self.stride = int(self.config.hidden_size), (float(patch[0]), float(patch[1]))
        if not lowest <= layer <= -1:
            raise ComponentError("The tower has no such layer.", got=f"{layer}", expected=f"-1 to {lowest}")

    def forward(self, pixels: Tensor, patches: list[tuple[int, int]] | None = None) -> list[Tensor]:
        if self.kind is None:
            return list(self.model(pixels).feature_maps[-1].permute(0, 2, 3, 1))
        if patches is not None:
            rows = self._states(**patch_inputs(pixels, patches))
            return [row[: h * w].unflatten(0, (h, w)) for row, (h, w) in zip(rows, patches, strict=True)]
        cells = (int(pixels.shape[-2] // self.stride[0]), int(pixels.shape[-1] // self.stride[1]))
        rows = self._states(pixel_values=pixels, **self._more(pixels, cells))[:, self.skip :]
        if rows.shape[1] != cells[0] * cells[1]:
            got = f"{rows.shape[1]} tokens after {self.skip} that are no patches"
            raise DataError(f"{self.what} does not give a token for each patch.", got=got, expected=f"{cells} patches")
        return list(rows.unflatten(1, cells))

    def _more(self, pixels: Tensor, cells: tuple[int, int]) -> dict[str, Any]:
        assert self.kind is not None
        more: dict[str, Any] = {}
        trained_size = _square(getattr(self.config, "image_size", pixels.shape[-1]))
        if self.kind.interpolates and tuple(pixels.shape[-2:]) != trained_size:
            more["interpolate_pos_encoding"] = True
        if self.kind.name.startswith("ViTMAE"):  # it keeps patches in the order of this noise
            order = torch.linspace(0, 1, cells[0] * cells[1], device=pixels.device)
            more["noise"] = order.expand(len(pixels), -1)
        return more

    def _states(self, **fed: Any) -> Tensor:
        out = self.model(**fed, output_hidden_states=self.layer != -1)
        return cast("Tensor", out.last_hidden_state if self.layer == -1 else out.hidden_states[self.layer])


# Norms that AutoBackbone puts after each stage: only detectors' backbones have them; elsewhere they scale by one
UNTRAINED_NORMS = ("hidden_states_norms.*",)
# The key of configurations that says how many register tokens stand between the class token and the patches
REGISTERS = "num_register_tokens"


def _square(side: Any) -> tuple[int, int]:
    return (int(side[0]), int(side[1])) if isinstance(side, list | tuple) else (int(side), int(side))


def _loaded(folder: Path, kind: Kind | None, layer: int) -> Any:
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_BACKBONE_MAPPING_NAMES

    type_name = transformers_type(folder)
    if kind is not None:
        name, options = kind.name, {"may_miss": ("*pooler.*", "vision_model.head.*"), **dict(kind.options)}
    elif type_name in MODEL_FOR_BACKBONE_MAPPING_NAMES:  # AutoBackbone itself takes names of the hub only
        name = MODEL_FOR_BACKBONE_MAPPING_NAMES[type_name]
        options = {"may_miss": UNTRAINED_NORMS, "out_indices": [layer]}
    else:
        what = f"A model of the type {type_name!r} is neither a vision tower nor a backbone."
        expected = f"{', '.join(name for name in TOWERS if '_vision_' not in name)}, or another type of AutoBackbone"
        hint = "detectors (detr, rt_detr, grounding_dino, owlv2) are read by the extractor transformers-detector"
        raise ComponentError(what, where=str(folder / "config.json"), got=type_name, expected=expected, hint=hint)
    if not hasattr(transformers, name):
        got = f"transformers {transformers.__version__}, which has no {name}"
        raise ComponentError("The installed transformers is too old for this tower.", got=got, hint="pip install -U")
    return transformers_model(getattr(transformers, name), folder, **options)


@torch.no_grad()
def _probe(model: Any) -> tuple[int, tuple[float, float]]:
    height, width = _square(getattr(model.config, "image_size", None) or 224)
    shape = model(torch.zeros(1, int(getattr(model.config, "num_channels", 3)), height, width)).feature_maps[-1].shape
    return int(shape[1]), (float(height // shape[2]), float(width // shape[3]))


class TransformersExtractor(FolderExtractor):
    """Patches or map cells of a vision tower or backbone of transformers: DINOv2, DINOv3, SigLIP, SigLIP 2, CLIP, MAE.

    Model and image processor come from one folder, as ``save_pretrained`` writes it. Class tokens and registers are
    left out. Given boxes are pooled by RoIAlign.

    Args:
        boxes: ``cells`` (each patch or cell of the map is a region), ``given``, ``grid`` or ``given-or-grid``.
        grid: rows and columns of the grid.
        limit: most given boxes of an image, by score; 0 for all.
        layer: whose hidden states: -1 is the output of the tower, -2 the states before its last layer, and so on.
        image_size: height and width of whole pictures; None for what the image processor does, which may crop (DINOv2
            and CLIP see the centre). Given boxes are always pooled from whole pictures.
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
        processor = transformers_processor(self.folder)
        if image_size or boxes != "cells":
            processor = whole_pictures(processor, image_size)
        self.preparation = ProcessorPreparation(0, 0, boxes, grid, limit or None, processor=processor)

    def notes(self) -> list[str]:
        down, across = (f"{side:g}" for side in self.network.stride)
        cells = self.preparation.boxes == "cells"
        regions = f"patches or cells of {down} x {across} pixels" if cells else "RoIAlign of boxes"
        return [f"transformers: {self.model_class} of {self.folder}, {self.dim} numbers a region, {regions}"]

    def extract(self, batch: list[Prepared]) -> list[Record]:
        items = cast("list[Shown]", batch)
        patches = [item.patches for item in items] if any(items[0].patches) else None
        with autocast(self.device, self.precision):
            maps = self.network(stacked(batch, self.device), patches)  # of each picture (h, w, D)
        return [self._record(item, rows) for item, rows in zip(items, maps, strict=True)]

    def _record(self, item: Shown, rows: Tensor) -> Record:
        geometry = item.geometry(self.network.stride)
        if self.preparation.boxes == "cells":
            return cell_record(item, rows, geometry)
        boxes = item.scaled_boxes().to(rows) / rows.new_tensor(self.network.stride[::-1] * 2)  # in cells
        maps = rows.float().permute(2, 0, 1)[None]
        pooled = roi_align(maps, [boxes.float()], self.resolution, 1.0, self.sampling, True)
        return to_record(item, pooled.mean((2, 3)).cpu().numpy())
