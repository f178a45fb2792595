"""Softmax classification of pictures alone, with the regularisation that DeiT trains with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, EncoderOutput, ForwardPasses, Model, View, build_head
from vlcli.objectives.answers import AnswerTable
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision
from vlcli.objectives.labels import class_ids, label_entropy
from vlcli.objectives.mixing import Mixing, batch_seed, soft_targets

MIXED = "mixed"


class ImageClassification(Objective):
    """Classify a picture into the labels of the data; label smoothing, mixup and CutMix while training.

    The target is ``label``: a class number, a label string, or a distribution over the classes. The scores are those
    of the model's own classifier where it has one, else of a head on its pooled vector.

    Args:
        model: the model it trains.
        data_spec: ``answers`` are the label strings.
        classes: number of labels; None takes the strings of the data.
        head: a head of ``vlcli.nn.heads``, for a model without a classifier; None takes the model's usual.
        smoothing: share of the target that is spread over all classes.
        mixup: alpha of mixup; 0 for none.
        cutmix: alpha of CutMix; 0 for none.
        mix_probability: how often a batch is mixed.
        switch: how often CutMix is taken where both are on.
        view: the view that is classified.
    """

    paper = "DeiT, Touvron et al., ICML 2021, Table 9"
    requires = frozenset({"image"})

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        classes: int | None = None,
        head: str | None = None,
        smoothing: float = 0.0,
        mixup: float = 0.0,
        cutmix: float = 0.0,
        mix_probability: float = 1.0,
        switch: float = 0.5,
        view: str = "clean",
    ) -> None:
        super().__init__(model, data_spec)
        self.count = classes or len(data_spec.answers) or model.own_classes
        _check_rows(model, self.count)
        self.head = None if model.own_classes else build_head(model, "label", self.dim, self.count, head)
        self.table = AnswerTable(() if classes is not None else data_spec.answers)
        self.smoothing, self.view = smoothing, view
        self.mixing = Mixing(mixup, cutmix, mix_probability, switch)

    def logits(self, step: ForwardPasses, view: str) -> Tensor:
        """(B, C)."""
        states = step.image(view)
        scores = states.extra["logits"] if self.head is None else self.head(self.summary(step, states))
        return scores[step.view(view).image_rows[:, 0]]

    def summary(self, step: ForwardPasses, states: EncoderOutput) -> Tensor:
        """One vector for each picture (M, D).

        Raises:
            ComponentError: the model gives none.
        """
        if states.pooled is None:
            raise ComponentError(
                "The model gives no vector for a whole picture, and has no classifier of pictures.",
                where="objective image-classification",
                got=type(step.model).__name__,
                expected="a model whose encode_image gives `pooled` or scores: deit, swin, albef, vlmo",
            )
        return states.pooled

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        labels = self.targets(step)
        targets, view, share = labels, self.view, 1.0
        if step.training:
            view, share = self._mix(step)
            targets = (1 - self.smoothing) * labels + self.smoothing / self.count * labels.sum(1, keepdim=True)
        if share < 1:
            targets = targets * share + targets.flip(0) * (1 - share)
        logits = self.logits(step, view)
        known = targets.sum(1) > 0.5
        losses = -(targets * functional.log_softmax(full_precision(logits), -1)).sum(-1)
        right = (logits.argmax(1) == labels.argmax(1)).float()
        metrics = {"accuracy": Mean.of(right, known)} if share == 1 else {}
        return ObjectiveOutput({"image-classification": Mean.of(losses, known)}, {"logits": logits}, metrics)

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``logits`` (B, C)
        return {"logits": self.logits(step, self.view)}

    def constant_loss(self, targets: Sequence[Mapping[str, Any]]) -> float | None:
        return None if self.mixing.active else label_entropy(targets, self.table.index, self.count, self.smoothing)

    def targets(self, step: ForwardPasses) -> Tensor:
        """(B, C): what each example's label says of every class; zeros where it has none.

        Raises:
            DataError: a label that is none of the classes.
        """
        given = step.batch.targets.get("label")
        device = step.batch.seeds.device
        if isinstance(given, Tensor) and given.dim() == 2:
            if given.shape[1] != self.count:
                got, expected = f"{given.shape[1]} numbers", f"{self.count} classes"
                raise DataError(
                    "A label has another number of classes.", where="target label", got=got, expected=expected
                )
            return given.to(device).float()
        labels = class_ids(given, len(step.batch), self.table.index, self.count)
        return soft_targets(labels.to(device), self.count)

    def _mix(self, step: ForwardPasses) -> tuple[str, float]:
        view = step.view(self.view)
        if not self.mixing.active or view.images is None or view.images.pixels is None:
            return self.view, 1.0
        pixels = view.images.pixels
        images = replace(view.images, pixels=None).select(view.image_rows[:, 0])
        mixed, share = self.mixing(pixels.images[view.image_rows[:, 0]], batch_seed(step.batch.seeds))
        images.pixels = replace(pixels.select(view.image_rows[:, 0]), images=mixed)
        rows = torch.arange(len(mixed), device=mixed.device)
        step.batch.views[MIXED] = View(None, images, torch.full_like(rows, -1), rows[:, None])
        return MIXED, share

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return self.table.adapt(state, self.state_dict(), report)


def _check_rows(model: Model, count: int) -> None:
    if not count:
        raise ComponentError(
            "The number of labels is not known.",
            where="objective image-classification",
            expected="`classes: N`, or data whose examples have a label",
        )
    if model.own_classes and model.own_classes != count:
        raise ComponentError(
            "The model's classifier has another number of classes than the data.",
            where="objective image-classification",
            got=f"{model.own_classes} rows, {count} labels",
            hint="let the data decide: model.classes=null (weights of other classes: allow_unmatched='^model.head')",
        )
