"""A two-stage detector: backbone, proposals, regions and heads, by the conventions of a family."""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops import roi_align, roi_pool

from vlcli.detection import AttributeHead, Detections, apply_deltas, clip_boxes
from vlcli_bottom_up.families import Architecture, Family
from vlcli_bottom_up.proposals import ProposalNetwork
from vlcli_bottom_up.resnet import NormedConv, Pyramid, ResNet, stage

STRIDES = (4, 8, 16, 32, 64)
# A region of this side is cut from the pyramid's map of this index, stride 16 (Lin et al. 2017, equation 1).
CANONICAL_SIDE, CANONICAL_LEVEL = 224, 2


class TwoLayers(nn.Module):
    """The two layers on a pyramid's regions; the first one's output is the feature (fc6)."""

    def __init__(self, sizes: Architecture, resolution: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(sizes.pyramid * resolution**2, sizes.fc)
        self.fc2 = nn.Linear(sizes.fc, sizes.fc)

    def forward(self, regions: Tensor) -> tuple[Tensor, Tensor]:
        # (N, C, r, r) -> fc6 (N, D), fc7 (N, D), both after the rectifier
        first = self.fc1(regions.flatten(1)).relu()
        return first, self.fc2(first).relu()


class RegionHeads(nn.Module):
    """From a region's cells to its feature, classes, boxes and attributes."""

    def __init__(self, sizes: Architecture, family: Family) -> None:
        super().__init__()
        self.sizes, self.family = sizes, family
        self.resolution = family.resolution[bool(sizes.pyramid)]
        self.sampling = family.sampling[not sizes.attributes]
        if sizes.pyramid:
            self.box_head = TwoLayers(sizes, self.resolution)
        else:
            self.res5 = stage(sizes, 5, family, family.dilated)
        rows, boxes = sizes.classes + 1, 1 if sizes.one_box else sizes.classes + int(family.background_first)
        heads = {"cls_score": nn.Linear(sizes.dim, rows), "bbox_pred": nn.Linear(sizes.dim, 4 * boxes)}
        self.box_predictor = nn.ModuleDict(heads)
        if sizes.attributes:
            self.attributes = AttributeHead(sizes.dim, rows, sizes.attributes, sizes.embedding, sizes.attribute_hidden)

    def forward(self, maps: Sequence[Tensor], boxes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        # What is stored of every region (N, D) and what the heads see of it (N, D)
        if not self.sizes.pyramid:
            pooled = self.res5(self._cut(maps[0], list(boxes), 1 / 16)).mean((2, 3))
            return pooled, pooled
        return self.box_head.forward(self._cut_levels(maps[:4], boxes))

    def _cut(self, single: Tensor, boxes: list[Tensor] | Tensor, scale: float) -> Tensor:
        if self.family.pool == "pool":
            return cast(Tensor, roi_pool(single, boxes, self.resolution, scale))
        aligned = self.family.pool == "align"
        return cast(Tensor, roi_align(single, boxes, self.resolution, scale, self.sampling, aligned=aligned))

    def _cut_levels(self, maps: Sequence[Tensor], boxes: Sequence[Tensor]) -> Tensor:
        rows = torch.cat([F.pad(part, (1, 0), value=float(index)) for index, part in enumerate(boxes)])  # (N, 5)
        sides = rows[:, 3:] - rows[:, 1:3] + int(self.family.legacy)
        wanted = (sides.prod(1).sqrt() / CANONICAL_SIDE + self.family.level_epsilon).log2() + CANONICAL_LEVEL
        levels = wanted.floor().clamp(0, len(maps) - 1)
        cells = maps[0].new_zeros(len(rows), maps[0].shape[1], self.resolution, self.resolution)
        for level, single in enumerate(maps):
            chosen = levels == level
            cells[chosen] = self._cut(single, rows[chosen], 1 / STRIDES[level])
        return cells

    def classify(self, seen: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return class probabilities (N, C), background (N,), attribute probabilities (N, A) or None."""
        logits: Tensor = self.box_predictor["cls_score"](seen)
        probs, attributes = logits.softmax(1), None
        if self.sizes.attributes:
            scores = self.attributes(seen, logits.argmax(1))
            attributes = (scores[:, :-1] if self.family.none_attribute == "last" else scores).softmax(1)
            attributes = attributes[:, 1:] if self.family.none_attribute == "first" else attributes
        if self.family.background_first:
            return probs[:, 1:], probs[:, 0], attributes
        return probs[:, :-1], probs[:, -1], attributes

    def refine(self, seen: Tensor, boxes: Tensor) -> Tensor:
        """Return every class's box (N, C, 4), from proposals of the same coordinates."""
        deltas, family = self.box_predictor["bbox_pred"](seen).view(len(boxes), -1, 4), self.family
        if family.background_first and not self.sizes.one_box:
            deltas = deltas[:, 1:]
        extra = int(family.legacy)
        refined = apply_deltas(deltas, boxes[:, None], family.box_weights, extra=extra, inclusive=family.inclusive)
        return refined.expand(-1, self.sizes.classes, -1)


class Detector(nn.Module):
    """A two-stage detector with Visual Genome's heads by a family's conventions, on torchvision's operators."""

    def __init__(self, family: Family, sizes: Architecture) -> None:
        super().__init__()
        self.family, self.sizes = family, sizes
        self.backbone = Pyramid(sizes, family) if sizes.pyramid else ResNet(sizes, family, last=4)
        strides = STRIDES if sizes.pyramid else (16,)
        self.proposal_generator = ProposalNetwork(family, sizes, sizes.pyramid or sizes.out * 4, strides)
        self.roi_heads = RegionHeads(sizes, family)

    @property
    def cell_width(self) -> int:
        return self.sizes.pyramid or self.sizes.dim

    def cells(self, pixels: Tensor) -> tuple[Tensor, float]:
        """Return the map of whole pictures, and the side of its cells in pixels (Jiang et al. 2020, grid features).

        Args:
            pixels: normalised BGR (B, 3, H, W).

        Returns:
            The last stage on the map that regions are cut from (B, D, h, w); of a pyramid the coarsest of those maps.
        """
        if self.sizes.pyramid:
            coarsest: Tensor = self.backbone(_padded(pixels, self.family.multiple))[3]
            return coarsest, float(STRIDES[3])
        whole: Tensor = self.roi_heads.res5(self.backbone(pixels)[-1])
        return whole, 16.0 if self.family.dilated else 32.0

    def fold(self) -> None:
        for module in self.modules():
            if isinstance(module, NormedConv):
                module.fold()

    def forward(
        self,
        pixels: Tensor,
        originals: Sequence[tuple[int, int]],
        scales: Sequence[tuple[float, float]],
        regions: Sequence[Tensor] | None = None,
    ) -> list[Detections]:
        size = (int(pixels.shape[2]), int(pixels.shape[3]))
        if self.sizes.pyramid:
            pixels = _padded(pixels, self.family.multiple)
        limit = (int(pixels.shape[2]), int(pixels.shape[3])) if self.family.clip_to_padding else size
        maps = self.backbone(pixels)[0 if self.sizes.pyramid else -1 :]
        factors = [pixels.new_tensor([*scale, *scale]) for scale in scales]
        if regions is None:
            boxes = self.proposal_generator(maps, limit, [scale[0] for scale in scales])
        else:
            boxes = [part.to(pixels) * factor for part, factor in zip(regions, factors, strict=True)]
        stored, seen = self.roi_heads(maps, boxes)
        counts = [len(part) for part in boxes]
        parts = zip(boxes, stored.split(counts), seen.split(counts), factors, originals, strict=True)
        return [self._describe(*part, size, proposed=regions is None) for part in parts]

    def _describe(
        self,
        boxes: Tensor,
        stored: Tensor,
        seen: Tensor,
        factor: Tensor,
        original: tuple[int, int],
        size: tuple[int, int],
        proposed: bool,
    ) -> Detections:
        probs, background, attributes = self.roi_heads.classify(seen)

        def regress() -> Tensor:
            if self.family.legacy:  # after going back to the original
                limit = original if self.family.inclusive else (size[0] / float(factor[1]), size[1] / float(factor[0]))
                return clip_boxes(self.roi_heads.refine(seen, boxes / factor), limit, extra=1)
            return clip_boxes(self.roi_heads.refine(seen, boxes), size) / factor

        return Detections(
            boxes=boxes / factor,
            features=stored,
            probs=probs,
            background=background,
            regress=regress if proposed else None,
            attributes=attributes,
            background_first=self.family.background_first,
        )


def _padded(pixels: Tensor, multiple: int) -> Tensor:
    height, width = pixels.shape[-2:]
    return F.pad(pixels, (0, -width % multiple, 0, -height % multiple))
