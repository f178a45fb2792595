"""Predicts masked words against targets mixed with the momentum copy's predictions (ALBEF)."""

from collections.abc import Mapping
from typing import Any

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
from vlcli.registry import RoleSpec


class DistilledMLM(MomentumHeads, MaskedLanguageModelling):
    """Masked language modelling whose right words are mixed with the momentum copy's guesses.

    Args:
        distill: share of the momentum copy's guesses.
        ramp: steps over which that share rises from 0.
        momentum: what the copy keeps of itself a step.
        probability: of hiding a piece.
        mask_share: of the hidden that become [MASK].
        random_share: of the hidden that become a random piece.
        mask_end: whether a final ``[SEP]`` may be hidden. ALBEF's texts have none (``text.end: none``).
        whole_word: hide all pieces of a word or none.
        view: the view whose words are hidden.
        head: a named head instead of the model's own.
        roles: hide words of these roles, as in ``mlm``.
        role_share: of the sentences that have such words, how many are masked by role.
        phrase: hide whole phrases, as in ``mlm``.
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
        ramp: int = 0,
        momentum: float = 0.995,
        probability: float = 0.15,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        mask_end: bool = True,
        whole_word: bool = False,
        view: str = "corrupted",
        head: str | None = None,
        roles: list[RoleSpec] = [],  # noqa: B006 (a schema's default)
        role_share: float = 1.0,
        phrase: bool = False,
    ) -> None:
        options: dict[str, Any] = {"probability": probability, "mask_share": mask_share, "random_share": random_share}
        options |= {"mask_end": mask_end, "whole_word": whole_word, "view": view, "head": head}
        options |= {"roles": roles, "role_share": role_share, "phrase": phrase, "ramp": ramp, "momentum": momentum}
        super().__init__(model, data_spec, on="fused", distill=checked_share(distill, "distilled-mlm"), **options)
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
