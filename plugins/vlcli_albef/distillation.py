"""Predicts masked words against targets mixed with the momentum copy's predictions (ALBEF)."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F

from vlcli.nn import DataSpec, ForwardPasses, Model
from vlcli.objectives import (
    MASKED_WORDS,
    MaskedLanguageModelling,
    Mean,
    MomentumHeads,
    ObjectiveOutput,
    checked_share,
    momentum_copy,
    softened,
)


class DistilledMLM(MomentumHeads, MaskedLanguageModelling):
    """Masked language modelling whose right words are mixed with the momentum copy's guesses.

    Args:
        distill: share of the momentum copy's guesses.
        mask_end: whether a final ``[SEP]`` may be hidden. ALBEF's texts have none (``text.end: none``).
        on: states to guess from: those with the picture.
    """

    paper = "ALBEF, Li et al. 2021, Eq. 3 and 6"
    requires = frozenset({"fuse"})
    init_from = ("mlm",)

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        distill: float = 0.4,
        mask_end: bool = True,
        on: Literal["fused"] = "fused",
        **options: Any,
    ) -> None:
        distill = checked_share(distill, "distilled-mlm")
        super().__init__(model, data_spec, distill=distill, mask_end=mask_end, on=on, **options)
        self.head_copy = momentum_copy(self.head)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        if MASKED_WORDS not in step.view(self.view).mask_labels:
            return ObjectiveOutput({})
        logits, truth = self.scores(step)
        loss = F.cross_entropy(logits, truth, reduction="none")
        if (share := self.share(step)) > 0:
            with torch.no_grad():
                guess = self.scores(step.teacher, self.head_copy)[0].softmax(-1)
            loss = softened(loss, logits, guess, share)
        right = (logits.argmax(-1) == truth).float()
        return ObjectiveOutput({"distilled-mlm": Mean.of(loss)}, metrics={"accuracy": Mean.of(right)})
