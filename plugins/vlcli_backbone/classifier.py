"""The model ``region-classifier``: a region backbone that is trained on labelled boxes."""

from typing import Literal

import torch
from torch import Tensor

from vlcli.detection import Head, RegionBackbone
from vlcli.errors import DataError
from vlcli.nn import DataSpec, EncoderOutput, Images, InputSpec, Layout, Model, Recorder


class RegionClassifier(Model):
    """A backbone with RoIAlign whose box features are trained to tell class and attribute.

    The objective ``region-labels`` puts the classifiers on top; the extractor ``backbone`` (same ``arch``) takes the
    trained file as its ``weights``.

    Args:
        arch: a backbone that ``RegionBackbone`` knows.
        image_size: height and width that pictures are resized to.
        layout: of a ResNet, ``torchvision`` or ``caffe``.
        head: ``c5``, ``c4-res5`` or ``final``.
        resolution: RoIAlign's cells per side; 0 for the head's own.
        sampling: RoIAlign's samples per cell side; 0 adapts.
        weights: local file the backbone starts from.
    """

    paper = "Anderson et al. 2018, Bottom-Up and Top-Down Attention, section 3.1; Girshick 2015 (regions on one map)"
    capabilities = frozenset({"image", "boxes", "pyramid"})
    local_files = ("weights",)

    def __init__(
        self,
        data_spec: DataSpec,
        *,
        arch: str = "tiny-conv",
        image_size: tuple[int, int] = (112, 112),
        layout: Literal["torchvision", "caffe"] = "torchvision",
        head: Head = "c5",
        resolution: int = 0,
        sampling: int = 2,
        weights: str | None = None,
    ) -> None:
        super().__init__(data_spec)
        self.image_size = image_size
        self.backbone = RegionBackbone(arch=arch, layout=layout, head=head, resolution=resolution, sampling=sampling)
        if weights is not None:
            self.backbone.load(weights)

    @property
    def dim(self) -> int:
        return self.backbone.dim

    def input_spec(self) -> InputSpec:
        mean, std = (0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255)
        return InputSpec(pixels=True, boxes=True, size=self.image_size, mean=mean, std=std)

    def pyramid_channels(self) -> tuple[int, ...]:
        return self.backbone.stage_channels()

    def pyramid(self, images: Images) -> list[Tensor]:
        # The backbone's map after each of its stages (M, C, h, w)
        return self.backbone.stages(images.pixels_for("region-classifier"))

    def encode_image(self, images: Images, record: Recorder | None = None) -> EncoderOutput:
        # Features (M, R, D) of the boxes of M pictures; zeros where a picture has fewer than R
        pixels = images.pixels
        if pixels is None or pixels.boxes is None or pixels.box_mask is None:
            raise DataError("The pictures come without boxes.", where="model region-classifier")
        mask = pixels.box_mask  # (M, R)
        height, width = pixels.images.shape[-2:]
        scaled = pixels.boxes * torch.tensor([width, height, width, height], device=mask.device)
        rows = self.backbone(pixels.images, [box[real] for box, real in zip(scaled, mask, strict=True)])  # (sum N, D)
        hidden = rows.new_zeros(*mask.shape, rows.shape[-1])
        hidden[mask] = rows
        return EncoderOutput(hidden, Layout.for_boxes(pixels.boxes, mask))
