"""Objectives on regions: classes of given boxes, regions that expressions describe, a detector's own losses."""

from collections.abc import Mapping
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError, DataError
from vlcli.nn import IMAGE, Batch, DataSpec, DetectionOutput, ForwardPasses, Images, Model, build_head, initialise
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, classified, full_precision


class RegionLabels(Objective):
    """Classify given boxes: an object class each, and an attribute.

    Args:
        attributes: weight of the attribute loss beside the class loss; 0 leaves the head out.
        view: the view whose boxes are classified.
    """

    paper = "Anderson et al. 2018 (Bottom-Up and Top-Down Attention), section 3.1"
    requires = frozenset({"boxes"})

    def __init__(self, model: Model, data_spec: DataSpec, *, attributes: float = 1.0, view: str = "clean") -> None:
        super().__init__(model, data_spec)
        if not model.describes_boxes:
            what, where = "The model does not describe each given box by a state of its own.", "objective region-labels"
            got, expected = type(model).__name__, "a model such as region-classifier or faster-rcnn"
            hint = "train a detector with the objective `detection`"
            raise ComponentError(what, where=where, got=got, expected=expected, hint=hint)
        self.attributes, self.view = attributes, view
        self.class_head = nn.Linear(self.dim, data_spec.region_classes)
        described = data_spec.region_attributes if attributes else 0  # boxes of most data sets have a class alone
        self.attribute_head = nn.Linear(self.dim, described) if described else None
        self.apply(partial(initialise, std=model.init_std))

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        images, hidden = step.view(self.view).images, step.image(self.view).hidden  # (M, R, D)
        if images is None or images.pixels is None or images.pixels.classes is None:
            what, where = "The pictures come without labelled boxes.", "objective region-labels"
            raise DataError(what, where=where, expected="a data set that gives boxes with classes, e.g. coco-instances")
        labels, mask = images.pixels.classes, images.pixels.box_mask
        losses, metrics = {}, {}
        losses["class"], metrics["class_accuracy"] = _score(self.class_head(hidden), labels, mask)
        if self.attribute_head is not None:
            attributes = torch.full_like(labels, -1) if images.pixels.attributes is None else images.pixels.attributes
            loss, metrics["attribute_accuracy"] = _score(self.attribute_head(hidden), attributes, mask)
            losses["attribute"] = Mean(loss.total * self.attributes, loss.count)
        return ObjectiveOutput(losses, metrics=metrics)

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``class_logits`` (B, R, C) and ``attribute_logits`` (B, R, A) of each example's first picture
        hidden = step.image(self.view).hidden[step.view(self.view).image_rows[:, 0]]
        heads = {"class_logits": self.class_head, "attribute_logits": self.attribute_head}
        return {name: head(hidden) for name, head in heads.items() if head is not None}


def _score(logits: Tensor, labels: Tensor, mask: Tensor | None) -> tuple[Mean, Mean]:
    # loss and accuracy of logits (M, R, C) where labels (M, R) are known
    known = labels >= 0 if mask is None else (labels >= 0) & mask
    return classified(full_precision(logits[known]), labels[known].long())


class RegionSelection(Objective):
    """Score every region by how well an expression fits it.

    Args:
        loss: ``bce``: every region by itself, the mean over regions (VL-BERT, DiMBERT); ``softmax``: over the regions
            of a picture, where one is right (UNITER).
        overlap: intersection over union with the target box above which a region is right.
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

        scores, mask, boxes = self._scored(step)  # (B, R), (B, R), (B, R, 4)
        target = target_boxes(step.batch, boxes)  # (B, 4)
        overlap = torch.stack([box_iou(row, one[None])[:, 0] for row, one in zip(boxes, target, strict=True)])
        right = (overlap > self.overlap) & mask  # (B, R)
        if self.loss == "bce":
            loss = Mean.of(F.binary_cross_entropy_with_logits(scores, right.to(scores.dtype), reduction="none"), mask)
        else:
            shares = right / right.sum(1, keepdim=True).clamp(min=1)
            loss = Mean.of(-(scores.masked_fill(~mask, -1e4).log_softmax(1) * shares).sum(1), right.any(1))
        best = scores.masked_fill(~mask, -torch.inf).argmax(1, keepdim=True)
        return ObjectiveOutput({"region-selection": loss}, metrics={"accuracy": Mean.of(right.gather(1, best).float())})

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``scores`` (B, R), lowest at padding, and ``boxes`` (B, R, 4) in shares of the picture
        scores, mask, boxes = self._scored(step)
        return {"scores": scores.masked_fill(~mask, torch.finfo(scores.dtype).min), "boxes": boxes}

    def _scored(self, step: ForwardPasses) -> tuple[Tensor, Tensor, Tensor]:
        view = step.view(self.view)
        if view.images is None or view.images.regions is None:
            raise DataError("Expressions are matched with regions, and the batch has none.", where="region-selection")
        rows = view.images.regions.select(view.image_rows[:, 0])
        fused, count = step.fused(self.view).image, rows.features.shape[1]
        # wherever the model keeps the states of regions among its image tokens
        columns = ((fused.layout.route == IMAGE) & ~fused.layout.special).any(0).nonzero()[:, 0]
        if len(columns) != count:
            what, got = "The model does not keep one state a region.", f"{len(columns)} states"
            raise DataError(what, where="region-selection", got=got, expected=f"{count} regions")
        return full_precision(self.head(fused.hidden[:, columns])[..., 0]), rows.mask, rows.boxes


def target_boxes(batch: Batch, like: Tensor) -> Tensor:
    """Return the target boxes (B, 4) in shares of their pictures. Raises DataError: the batch has none."""
    if batch.targets.keys().isdisjoint({"box", "pixel_box"}):
        raise DataError(
            "The examples do not say which box they speak of.",
            where="objective region-selection",
            expected="a data set of referring expressions (refcoco, or a table with the column `box`), whose examples "
            "have the target `box`",
        )
    shares = "box" in batch.targets
    boxes = torch.as_tensor(batch.targets["box" if shares else "pixel_box"]).to(like)
    return boxes if shares else boxes / picture_sides(batch).to(boxes)


def picture_sides(batch: Batch) -> Tensor:
    """Return width, height, width, height of every example's first picture, in pixels (B, 4)."""
    view = batch.clean
    assert view.images is not None
    assert view.images.regions is not None
    return view.images.regions.sizes[view.image_rows[:, 0]].flip(1).repeat(1, 2)


class Detection(Objective):
    """The losses a detector defines for itself (of proposals, classes, boxes, attributes).

    Args:
        view: the view whose pictures are searched.
    """

    paper = "Ren et al. 2015, Faster R-CNN"
    requires = frozenset({"detect"})

    def __init__(self, model: Model, data_spec: DataSpec, *, view: str = "clean") -> None:
        super().__init__(model, data_spec)
        self.view = view

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        losses = step.model.detection_losses(pictures_of(step, self.view))
        return ObjectiveOutput({name: Mean(total, count) for name, (total, count) in losses.items()})

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        return as_outputs(step.model.detect(pictures_of(step, self.view)), step, self.view)


def as_outputs(detections: DetectionOutput, step: ForwardPasses, view: str = "clean") -> dict[str, Tensor]:
    """Return ``boxes`` (B, N, 4) x1 y1 x2 y2 as shares of the picture, ``labels`` (B, N) and ``scores`` (B, N).

    Labels are classes from 0, and -1 where there is no box: what ``predict`` gives the task ``detection``.
    """
    chosen = detections.select(step.view(view).image_rows[:, 0])
    return {"boxes": chosen.boxes, "labels": chosen.labels, "scores": chosen.scores}


def pictures_of(step: ForwardPasses, view: str) -> Images:
    """Return the pictures of a view. Raises DataError: the batch has no pixels."""
    images = step.view(view).images
    if images is None or images.pixels is None:
        what, where = "The detector was given no pictures.", "objective detection"
        raise DataError(what, where=where, expected="a data set with pictures and labelled boxes, e.g. coco-instances")
    return images
