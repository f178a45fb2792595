"""Class and attribute of given boxes: what trains a region backbone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, ForwardPasses, Model, Pixels, initialise
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision


class RegionLabels(Objective):
    """Classify given boxes: an object class each, and an attribute.

    Args:
        model: a model that encodes the boxes of a picture.
        data_spec: ``region_classes`` and ``region_attributes``.
        attributes: how much the attribute loss counts beside the class loss; 0 leaves the head out.
        view: the view whose boxes are classified.
    """

    paper = "Anderson et al. 2018 (Bottom-Up and Top-Down Attention), section 3.1"
    requires = frozenset({"boxes"})

    def __init__(self, model: Model, data_spec: DataSpec, *, attributes: float = 1.0, view: str = "clean") -> None:
        super().__init__(model, data_spec)
        if not model.describes_boxes:
            raise ComponentError(
                "The model does not describe each given box by a state of its own.",
                where="objective region-labels",
                got=type(model).__name__,
                expected="a model such as region-classifier or faster-rcnn",
                hint="train a detector with the objective `detection`",
            )
        self.attributes, self.view = attributes, view
        self.class_head = nn.Linear(self.dim, data_spec.region_classes)
        described = data_spec.region_attributes if attributes else 0  # boxes of most data sets have a class alone
        self.attribute_head = nn.Linear(self.dim, described) if described else None
        self.apply(partial(initialise, std=model.init_std))

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        pixels, hidden = self._pixels(step), step.image(self.view).hidden
        assert pixels.classes is not None
        losses, metrics = {}, {}
        losses["class"], metrics["class_accuracy"] = _score(self.class_head(hidden), pixels.classes, pixels.box_mask)
        if self.attribute_head is not None:
            labels = torch.full_like(pixels.classes, -1) if pixels.attributes is None else pixels.attributes
            loss, metrics["attribute_accuracy"] = _score(self.attribute_head(hidden), labels, pixels.box_mask)
            losses["attribute"] = Mean(loss.total * self.attributes, loss.count)
        return ObjectiveOutput(losses, metrics=metrics)

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``class_logits`` (B, R, C) and ``attribute_logits`` (B, R, A) of each example's first picture
        rows = step.view(self.view).image_rows[:, 0]
        hidden = step.image(self.view).hidden[rows]
        found = {"class_logits": self.class_head(hidden)}
        if self.attribute_head is not None:
            found["attribute_logits"] = self.attribute_head(hidden)
        return found

    def _pixels(self, step: ForwardPasses) -> Pixels:
        images = step.view(self.view).images
        if images is None or images.pixels is None or images.pixels.classes is None:
            raise DataError(
                "The pictures come without labelled boxes.",
                where="objective region-labels",
                expected="a data set that gives boxes with classes, e.g. coco-instances",
            )
        return images.pixels


def _score(logits: Tensor, labels: Tensor, mask: Tensor | None) -> tuple[Mean, Mean]:
    # Loss and accuracy of ``logits`` (M, R, C) where ``labels`` (M, R) are known
    known = labels >= 0 if mask is None else (labels >= 0) & mask
    chosen, truth = logits[known], labels[known].long()
    loss = functional.cross_entropy(full_precision(chosen), truth, reduction="none")
    return Mean.of(loss), Mean.of((chosen.argmax(-1) == truth).float())
