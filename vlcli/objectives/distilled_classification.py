"""Classification whose right labels are mixed with what a momentum copy thinks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from vlcli.nn import DataSpec, ForwardPasses, Model
from vlcli.objectives.base import Mean, ObjectiveOutput, full_precision
from vlcli.objectives.blanking import Only, seen
from vlcli.objectives.classification import Classification
from vlcli.objectives.momentum import MomentumHeads, checked_share, momentum_copy, ramped, softened


class DistilledClassification(MomentumHeads, Classification):
    """Classify an example (sentence with one picture or several), softened by a momentum copy (ALBEF).

    The target is ``label``, as in ``classification``.

    Args:
        model: the model it trains.
        data_spec: ``answers`` are the label strings.
        classes: number of labels; None takes the strings of the data.
        images: pictures an example has (two for NLVR2).
        head: a head of ``vlcli.nn.heads``; None takes the model's own (role ``pair`` for two pictures, else ``label``).
        only: what the model sees; ``text`` and ``images`` are controls.
        view: the view that is classified.
        distill: share of the momentum copy in the right answers.
        ramp: steps over which that share rises from 0.
        momentum: what the copy keeps of itself a step.
    """

    paper = "ALBEF, Li et al. 2021, sections 3.3 and 5 (SNLI-VE, NLVR2)"
    init_from = ("classification",)

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        classes: int | None = None,
        images: int = 1,
        head: str | None = None,
        only: Only = "both",
        view: str = "clean",
        distill: float = 0.4,
        ramp: int = 0,
        momentum: float = 0.995,
    ) -> None:
        super().__init__(model, data_spec, classes=classes, images=images, head=head, only=only, view=view)
        self.distill = checked_share(distill, "distilled-classification")
        self.teacher_momentum, self.ramp = momentum, ramp
        self.head_copy = momentum_copy(self.head)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        plain = super().forward(step, others)
        share = ramped(self.distill, self.ramp, step.index)
        if share == 0:
            return ObjectiveOutput(
                {"distilled-classification": plain.losses["classification"]}, plain.outputs, plain.metrics
            )
        logits = full_precision(plain.outputs["logits"])
        labels = self.numbers(step.batch.targets.get("label"), logits)
        terms = functional.cross_entropy(logits, labels, ignore_index=-1, reduction="none")
        terms = softened(terms, logits, self._guess(step), share)
        return ObjectiveOutput({"distilled-classification": Mean.of(terms, labels >= 0)}, plain.outputs, plain.metrics)

    @torch.no_grad()
    def _guess(self, step: ForwardPasses) -> Tensor:
        # (B, C) what the copy thinks
        name = seen(step, self.view, self.only)
        return full_precision(self.head_copy(step.teacher.fused(name).by_example())).softmax(1)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        own = self.state_dict()
        copies = {name: value for name, value in state.items() if name.startswith("head_copy.")}
        made = super().adapt({name: value for name, value in state.items() if name not in copies}, report)
        fits = all(name in own and own[name].shape == value.shape for name, value in copies.items())
        return {**made, **copies} if fits else made
