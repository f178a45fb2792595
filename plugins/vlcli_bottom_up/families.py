"""The published families of Visual Genome detectors: how each prepares pixels, places boxes and orders its heads.

Nothing here can be read off a checkpoint; what can (depth, widths, classes) is in :mod:`vlcli_bottom_up.architecture`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vlcli.detection import DETECTRON_MEAN, Resize, RuleName

FamilyName = Literal["caffe", "airsplay", "detectron2", "vlp"]
IMAGENET_MEAN = (103.530, 116.280, 123.675)


@dataclass(frozen=True)
class Family:
    """Conventions of a family."""

    name: FamilyName  # the family
    mean: tuple[float, float, float]  # of BGR in 0..255
    rule: RuleName  # its own selection
    short: int = 600  # pixels of the shorter side
    long: int = 1000  # most pixels of the longer side
    # ``float``: mean taken off, then bilinear samples as OpenCV takes them, one factor for both sides; ``image``: 8-bit
    # and antialiased as Pillow does it, one factor per side
    resize: Resize = "image"
    multiple: int = 32  # sides are padded with zeros to a multiple of this (pyramids)
    clip_to_padding: bool = False  # proposals may reach into that padding (Detectron)
    caffe_pool: bool = False  # first pooling without padding, rounding up
    stride_in_1x1: bool | None = True  # where a stage's stride sits; None: in the 1x1 unless convolutions are grouped
    dilated: bool = False  # last stage at stride 1 with dilation 2
    legacy: bool = False  # a box's far corner is its last pixel: widths are one more, the limit is the last pixel
    # regression keeps to that (Detectron); the Caffe code adds one and does not take it off again
    inclusive: bool = False
    filter_first: bool = False  # boxes are clipped and filtered before the strongest are taken, not after
    min_size: float = 0.0  # proposals smaller than this, in original pixels, are dropped
    strict_min: bool = True  # exactly ``min_size`` is too small as well
    before: int = 6000  # proposals taken to suppression (of each level)
    after: int = 300  # proposals left by it
    softmax_objectness: bool = False  # two channels an anchor (all backgrounds first), not one
    background_first: bool = False  # class 0 is the background, not the last one; its regression columns exist too
    # what box deltas were multiplied by in training
    box_weights: tuple[float, float, float, float] = (10.0, 10.0, 5.0, 5.0)
    # where the attribute head has "none": ``first`` (counted), ``last`` (left out before the softmax), or ``absent``
    none_attribute: Literal["first", "last", "absent"] = "absent"
    # regions are cut by RoIPool or by RoIAlign, half a pixel shifted (``align``) or not (``align-legacy``)
    pool: Literal["pool", "align", "align-legacy"] = "pool"
    resolution: tuple[int, int] = (14, 7)  # cells per side of a region; for C4 and for a pyramid
    # RoIAlign's samples per side of a cell (0 adapts to the box); with an attribute head and without
    sampling: tuple[int, int] = (2, 2)
    # anchor sizes; of the one map, or of each level of a pyramid
    sizes: tuple[float, ...] = (64.0, 128.0, 256.0, 512.0)
    level_epsilon: float = 1e-8  # in the rule that sends a region to its level


FAMILIES: dict[FamilyName, Family] = {
    # Anderson et al. 2018 (lib/rpn, tools/generate_tsv.py) and MILVLG/bottom-up-attention.pytorch, mode caffe.
    "caffe": Family(
        "caffe",
        DETECTRON_MEAN,
        "caffe",
        resize="float",
        caffe_pool=True,
        dilated=True,
        legacy=True,
        filter_first=True,
        min_size=16.0,
        softmax_objectness=True,
        background_first=True,
        box_weights=(1.0, 1.0, 1.0, 1.0),
        none_attribute="first",
    ),
    # airsplay/py-bottom-up-attention and the LXMERT detector of earlier transformers releases.
    "airsplay": Family("airsplay", DETECTRON_MEAN, "airsplay", caffe_pool=True, dilated=True, none_attribute="last"),
    # detectron2 as it stands; MILVLG's own trainings (R50, R101, X152) add an attribute head.
    "detectron2": Family(
        "detectron2",
        IMAGENET_MEAN,
        "detectron2",
        stride_in_1x1=None,
        after=1000,
        pool="align",
        # MILVLG's base-d2.yaml says POOLER_SAMPLING_RATIO: 2; detectron2's own default, and so its zoo's, is 0.
        sampling=(2, 0),
        sizes=(32.0, 64.0, 128.0, 256.0, 512.0),
    ),
    # LuoweiZhou/detectron-vlp over Detectron's X-101-64x4d-FPN_2x; its configuration file is not public.
    "vlp": Family(
        "vlp",
        DETECTRON_MEAN,
        "vlp",
        short=800,
        long=1333,
        resize="float",
        clip_to_padding=True,
        stride_in_1x1=None,
        legacy=True,
        inclusive=True,
        strict_min=False,
        before=1000,
        after=1000,
        background_first=True,
        none_attribute="first",
        pool="align-legacy",
        sizes=(32.0, 64.0, 128.0, 256.0, 512.0),
        level_epsilon=1e-6,
    ),
}
