"""Which region an expression speaks of: a score a region."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vlcli.errors import DataError
from vlcli.nn import IMAGE, Batch, DataSpec, ForwardPasses, FusionOutput, Model, build_head
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision


class RegionSelection(Objective):
    """Score every region by how well an expression fits it.

    A region is right where its overlap with the target box (intersection over union) is above ``overlap``.

    Args:
        model: fuses words and regions.
        data_spec: not used.
        loss: ``bce``: every region by itself, the mean over regions (VL-BERT, DiMBERT); ``softmax``: over the regions
            of a picture, where one is right (UNITER).
        overlap: see above.
        view: the view it reads.
        head: a named head instead of the model's own for the role ``region``.
    """

    paper = "DiMBERT, Liu et al. 2021, section 4.3; VL-BERT, Su et al. 2020, section 4.2.3"
    requires = frozenset({"fuse"})
    inputs = frozenset({"text", "regions"})

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        loss: Literal["bce", "softmax"] = "bce",
        overlap: float = 0.5,
        view: str = "clean",
        head: str | None = None,
    ) -> None:
        super().__init__(model, data_spec)
        self.loss, self.overlap, self.view = loss, overlap, view
        self.head = build_head(model, "region", self.dim, 1, head)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        from torchvision.ops import box_iou  # its import takes as long as torch's

        scores, mask, boxes = self._scored(step)
        target = target_boxes(step.batch, boxes)  # (B, 4)
        overlap = torch.stack([box_iou(own, one[None])[:, 0] for own, one in zip(boxes, target, strict=True)])
        right = (overlap > self.overlap) & mask
        if self.loss == "bce":
            each = F.binary_cross_entropy_with_logits(scores, right.to(scores.dtype), reduction="none")
            found = Mean.of(each, mask)
        else:
            solvable = right.any(1)
            shares = right / right.sum(1, keepdim=True).clamp(min=1)
            lost = -(scores.masked_fill(~mask, -1e4).log_softmax(1) * shares).sum(1)
            found = Mean.of(lost, solvable)
        best = scores.masked_fill(~mask, -torch.inf).argmax(1, keepdim=True)
        return ObjectiveOutput(
            {"region-selection": found}, metrics={"accuracy": Mean.of(right.gather(1, best).float())}
        )

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``scores`` (B, R), lowest at padding, and ``boxes`` (B, R, 4) in shares of the picture
        scores, mask, boxes = self._scored(step)
        return {"scores": scores.masked_fill(~mask, torch.finfo(scores.dtype).min), "boxes": boxes}

    def _scored(self, step: ForwardPasses) -> tuple[Tensor, Tensor, Tensor]:
        # Scores (B, R), real regions (B, R) and their boxes (B, R, 4)
        view = step.view(self.view)
        regions = None if view.images is None else view.images.regions
        if regions is None:
            raise DataError("Expressions are matched with regions, and the batch has none.", where="region-selection")
        chosen = regions.select(view.image_rows[:, 0])
        hidden = region_states(step.fused(self.view), chosen.features.shape[1])
        return full_precision(self.head(hidden)[..., 0]), chosen.mask, chosen.boxes


def target_boxes(batch: Batch, like: Tensor) -> Tensor:
    """(B, 4) what the expressions speak of, in shares of their pictures.

    Raises:
        DataError: the examples say of no box.
    """
    if "box" in batch.targets:
        return torch.as_tensor(batch.targets["box"], dtype=like.dtype, device=like.device)
    if "pixel_box" in batch.targets:
        boxes = torch.as_tensor(batch.targets["pixel_box"], dtype=like.dtype, device=like.device)
        return boxes / picture_sides(batch).to(boxes)
    raise DataError(
        "The examples do not say which box they speak of.",
        where="objective region-selection",
        expected="a data set of referring expressions (refcoco, or a table with the column `box`), whose examples have "
        "the target `box`",
    )


def picture_sides(batch: Batch) -> Tensor:
    """(B, 4) width, height, width, height of every example's first picture, in pixels."""
    view = batch.clean
    assert view.images is not None
    assert view.images.regions is not None
    return view.images.regions.sizes[view.image_rows[:, 0]].flip(1).repeat(1, 2)


def region_states(fused: FusionOutput, count: int) -> Tensor:
    """(P, R, D) the states of a picture's regions, wherever the model keeps them among its image tokens.

    Raises:
        DataError: the model has another number of them.
    """
    layout = fused.image.layout
    columns = ((layout.route == IMAGE) & ~layout.special).any(0).nonzero()[:, 0]
    if len(columns) != count:
        raise DataError(
            "The model does not keep one state a region.",
            where="region-selection",
            got=f"{len(columns)} states",
            expected=f"{count} regions",
        )
    return fused.image.hidden[:, columns]
