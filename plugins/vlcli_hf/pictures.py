"""Pictures as an image processor of transformers gives them to its model, and where their pixels come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from vlcli.detection import MapGeometry, Preparation, Prepared
from vlcli.images import BoxList


@dataclass(frozen=True)
class Window:
    """The part of the resized picture that the model sees, in pixels."""

    resized: tuple[float, float]  # height and width, from which the picture's factors follow
    origin: tuple[int, int]  # row and column of the first pixel seen; negative where the picture is padded before
    shown: tuple[int, int]  # height and width of the model's input


def window_of(processor: Any, size: tuple[int, int]) -> Window:
    """Returns where an image processor puts a picture of ``size`` (height, width)."""
    if hasattr(processor, "max_num_patches"):
        from transformers.models.siglip2.image_processing_siglip2 import get_image_size_for_max_num_patches as naflex

        height, width = naflex(*size, processor.patch_size, processor.max_num_patches)
        return _whole((int(height), int(width)))
    if side := _percentage_side(processor):
        if side >= LEAST_WARPED:
            return _whole((side, side))
        resized = _shorter_to(int(side / processor.crop_pct), size)
        return Window(resized, (_margin(resized[0], side), _margin(resized[1], side)), (side, side))
    resized = _resized(processor, size) if getattr(processor, "do_resize", True) else size
    if getattr(processor, "do_pad", False) and type(processor).__name__.startswith("Owlv2"):  # pads to a square
        side = max(size)
        return Window((size[0] * resized[0] / side, size[1] * resized[1] / side), (0, 0), resized)
    if not getattr(processor, "do_center_crop", None):
        return _whole(resized)
    crop = _pair(processor.crop_size) or resized
    top, left = (_margin(whole, part) for whole, part in zip(resized, crop, strict=True))
    return Window(resized, (top, left), crop)


def _margin(whole: int, part: int) -> int:
    return int((whole - part) / 2) if whole >= part else -((part - whole) // 2)


def _whole(size: tuple[int, int]) -> Window:
    return Window(size, (0, 0), size)


# From this side on, ConvNeXt's image processor stretches pictures; below it resizes and cuts out the centre
LEAST_WARPED = 384


def _percentage_side(processor: Any) -> int:
    # Side of the input of a processor that cuts a share out of the picture; 0 of others.
    return _value(processor.size, "shortest_edge") if getattr(processor, "crop_pct", None) else 0


def _shorter_to(short: int, size: tuple[int, int]) -> tuple[int, int]:
    other = int(short * max(size) / min(size))
    return (short, other) if size[0] <= size[1] else (other, short)


def _resized(processor: Any, size: tuple[int, int]) -> tuple[int, int]:
    from transformers import image_transforms

    wanted = processor.size
    short, long = _value(wanted, "shortest_edge"), _value(wanted, "longest_edge")
    if short and long:
        height, width = image_transforms.get_size_with_aspect_ratio(size, short, long)
        return int(height), int(width)
    if short:
        return _shorter_to(short, size)
    if pair := _pair(wanted):
        return pair
    raise ValueError(f"the image processor's size {wanted} is none that vlcli knows")


def _value(size: Any, key: str) -> int:
    return int((size.get(key) if isinstance(size, dict) else getattr(size, key, None)) or 0)


def _pair(size: Any) -> tuple[int, int] | None:
    height, width = _value(size, "height"), _value(size, "width")
    return (height, width) if height and width else None


@dataclass
class Shown(Prepared):
    """A prepared picture of which the model may see a part."""

    offset: tuple[float, float] = (0.0, 0.0)  # (x, y) of the first pixel seen in the resized picture
    patches: tuple[int, int] = (0, 0)  # rows and columns of SigLIP 2's patches in a row; (0, 0) of others

    def scaled_boxes(self) -> Tensor:
        x, y = self.offset
        return super().scaled_boxes() - torch.tensor([x, y, x, y])

    def geometry(self, stride: tuple[float, float]) -> MapGeometry:
        """Returns where the cells of a map lie; ``stride``: their height and width in pixels of the model's input."""
        return MapGeometry(stride, self.scale, self.offset)


@dataclass
class ProcessorPreparation(Preparation):
    """Pictures through the image processor that belongs to a model of transformers."""

    processor: Any = None

    def input_size(self, size: tuple[int, int]) -> tuple[int, int]:
        return window_of(self.processor, size).shown

    def __call__(self, image: Image.Image, boxes: BoxList | None) -> Prepared:
        size = (image.height, image.width)
        inputs = self.processor(images=image, return_tensors="pt")
        pixels: Tensor = inputs["pixel_values"][0]
        window = window_of(self.processor, size)
        patches = tuple(int(side) for side in inputs["spatial_shapes"][0]) if "spatial_shapes" in inputs else (0, 0)
        if not any(patches) and tuple(pixels.shape[-2:]) != window.shown:
            got = f"{pixels.shape[-2]} x {pixels.shape[-1]} pixels where {window.shown} were expected"
            raise ValueError(f"the image processor {type(self.processor).__name__} gives {got}")
        scale = (window.resized[1] / size[1], window.resized[0] / size[0])
        offset = (float(window.origin[1]), float(window.origin[0]))
        return Shown(pixels, size, scale, self._regions(size, boxes), offset=offset, patches=(patches[0], patches[1]))


def whole_pictures(processor: Any, side: tuple[int, int] | None) -> Any:
    """Returns the processor, changed in place to resize whole pictures to one size and to crop nothing.

    Args:
        side: height and width in pixels; None for the processor's own: that of its crop, else of its resizing.
    """
    if hasattr(processor, "max_num_patches"):
        return processor
    if own_side := _percentage_side(processor):
        from transformers import ViTImageProcessor

        height, width = side or (own_side, own_side)
        names = ("image_mean", "image_std", "resample", "rescale_factor", "do_normalize", "do_rescale")
        return ViTImageProcessor(size={"height": height, "width": width}, **{n: getattr(processor, n) for n in names})
    side = side or (_pair(processor.crop_size) if getattr(processor, "do_center_crop", None) else None)
    if side is not None:
        size = {"height": side[0], "width": side[1]}
        processor.size = size if isinstance(processor.size, dict) else type(processor.size)(**size)
        processor.do_center_crop = False
    return processor


def stacked(batch: Sequence[Prepared], device: torch.device) -> Tensor:
    """Return the pixels of a batch (B, ...)."""
    return torch.stack([item.pixels for item in batch]).to(device, non_blocking=True)


def patch_inputs(pixels: Tensor, patches: Sequence[tuple[int, int]]) -> dict[str, Tensor]:
    """Returns the inputs of SigLIP 2: patches in a row (B, N, ...), the mask of real ones, their rows and columns."""
    shapes = torch.tensor(patches, device=pixels.device)
    mask = (torch.arange(pixels.shape[1], device=pixels.device) < shapes.prod(1)[:, None]).int()
    return {"pixel_values": pixels, "pixel_attention_mask": mask, "spatial_shapes": shapes}
