"""Detection: a detector's own losses against labelled boxes, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from vlcli.errors import DataError
from vlcli.nn import DataSpec, DetectionOutput, ForwardPasses, Images, Model
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput


class Detection(Objective):
    """The losses a detector defines for itself (of proposals, classes, boxes, attributes).

    Args:
        model: a model that detects.
        data_spec: not needed.
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
        # What the task ``detection`` decodes, see :func:`as_outputs`
        return as_outputs(step.model.detect(pictures_of(step, self.view)), step, self.view)


def as_outputs(found: DetectionOutput, step: ForwardPasses, view: str = "clean") -> dict[str, Tensor]:
    """Detections as the task ``detection`` takes them from any objective's ``predict``.

    Args:
        found: in the unique pictures of the view.
        step: says which picture belongs to which example.
        view: the view.

    Returns:
        ``boxes`` (B, N, 4) x1, y1, x2, y2 as shares of the picture, ``labels`` (B, N) classes from 0 and -1 where
        there is no box, ``scores`` (B, N).
    """
    chosen = found.select(step.view(view).image_rows[:, 0])
    return {"boxes": chosen.boxes, "labels": chosen.labels, "scores": chosen.scores}


def pictures_of(step: ForwardPasses, view: str) -> Images:
    """The pictures of a view.

    Raises:
        DataError: they were not loaded as pixels.
    """
    images = step.view(view).images
    if images is None or images.pixels is None:
        raise DataError(
            "The detector was given no pictures.",
            where="objective detection",
            expected="a data set with pictures and labelled boxes, e.g. coco-instances",
        )
    return images
