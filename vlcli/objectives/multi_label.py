"""Several labels of a picture: a sigmoid for each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vlcli.nn import DataSpec, EncoderOutput, ForwardPasses, Model
from vlcli.objectives.base import Mean, ObjectiveOutput, full_precision
from vlcli.objectives.image_classification import ImageClassification


class MultiLabel(ImageClassification):
    """Say of each class whether a picture has it, by binary cross-entropy; what is unknown counts for nothing.

    The targets are ``labels``, the names of the classes, and ``unknown_labels``; or one ``label`` an example. A model
    without a vector for a whole picture, such as LXMERT, gives the mean of its regions.

    Args:
        model: the model it trains.
        data_spec: ``answers`` are the names of the classes.
        head: a head of ``vlcli.nn.heads``, for a model without a classifier; None takes the model's usual.
        view: the view that is classified.
    """

    paper = ""

    def __init__(self, model: Model, data_spec: DataSpec, *, head: str | None = None, view: str = "clean") -> None:
        super().__init__(model, data_spec, head=head, view=view)

    def summary(self, step: ForwardPasses, states: EncoderOutput) -> Tensor:
        # The model's vector for each picture, else the mean of its tokens (M, D)
        if states.pooled is not None:
            return states.pooled
        real = states.layout.valid.to(states.hidden)[..., None]  # (M, R, 1)
        total: Tensor = (states.hidden * real).sum(1) / real.sum(1).clamp(min=1)
        return total

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        labels, logits = self.targets(step), self.logits(step, self.view)
        known, truth = labels >= 0, labels.clamp(min=0)
        losses = functional.binary_cross_entropy_with_logits(full_precision(logits), truth, reduction="none")
        right = ((logits > 0) == truth.bool()).float()
        return ObjectiveOutput(
            {"multi-label": Mean.of(losses, known)}, {"logits": logits}, {"accuracy": Mean.of(right, known)}
        )

    def targets(self, step: ForwardPasses) -> Tensor:
        # (B, C): 1 where an example has a class, 0 where not, -1 where that is unknown
        given = step.batch.targets.get("labels")
        if given is None:
            single = super().targets(step)
            return torch.where(single.sum(1, keepdim=True) > 0, single, -1.0)
        unknown = step.batch.targets.get("unknown_labels") or [None] * len(given)
        rows = [self._flags(names, lacking or ()) for names, lacking in zip(given, unknown, strict=True)]
        return torch.tensor(rows).to(step.batch.seeds.device)

    def _flags(self, names: Any, unknown: Any) -> list[float]:
        return [-1.0 if names is None or name in unknown else float(name in names) for name in self.table.answers]
