"""Defines bidirectional and sequence-to-sequence language modelling of DiMBERT and VLP."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F

from vlcli.data import Corruption, Donor, Sample, TextSample
from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, ForwardPasses, Model
from vlcli.objectives import (
    MASKED_WORDS,
    MATCHED,
    ROLE_OPTIONS,
    MaskWords,
    Mean,
    Objective,
    ObjectiveOutput,
    full_precision,
    role_picker,
)
from vlcli.registry import RoleSpec

# Per example: 1 where it is read as sequence to sequence, 0 where it is bidirectional
CAUSAL = "causal"


def choose_mode(sample: Sample, rng: np.random.Generator, bidirectional: float) -> bool:
    """Returns whether ``sample`` is sequence to sequence: as another objective of the view chose, or drawn."""
    if CAUSAL not in sample.mask_labels.example:
        sample.mask_labels.example[CAUSAL] = int(rng.random() >= bidirectional)
    return bool(sample.mask_labels.example[CAUSAL])


@dataclass(eq=False)
class MaskCaption(MaskWords):
    """Chooses an example's mode, and hides words as VLP does: a share of all pieces but the final separator."""

    name = "blm-s2slm"
    bidirectional: float = 0.25

    def __call__(self, sample: Sample, rng: np.random.Generator, donor: Donor) -> None:
        if sample.text is None:
            return
        causal = choose_mode(sample, rng, self.bidirectional)
        sample.text = replace(sample.text, causal=causal)
        if sample.mask_labels.example.get(MATCHED, 1):
            super().__call__(sample, rng, donor)
        else:
            sample.mask_labels.text[MASKED_WORDS] = [-1] * len(sample.text.ids)

    def usual(self, text: TextSample, rng: np.random.Generator) -> list[int]:
        if self.rule == "bernoulli" or (self.picker is not None and self.picker.phrase):
            return super().usual(text, rng)
        last = len(text.ids) - 1
        words = [index for index, special in enumerate(text.special) if not special]
        maskable = [*words, last] if self.end and text.special[last] else words
        budget = min(self.limit or len(maskable), max(1, round(self.probability * len(words))))
        return sorted(int(index) for index in rng.permutation(maskable)[:budget])


class CaptionModelling(Objective):
    """Bidirectional and sequence-to-sequence language modelling, drawn per example (VLP, DiMBERT).

    A bidirectional row sees everything, a sequence-to-sequence row the pictures and the words on the left; both share
    one masked sequence and one forward pass.

    Args:
        bidirectional: share of examples that are read in both directions (0.25 as published).
        probability: share of words to hide.
        mask_share: of the hidden that become [MASK].
        random_share: of the hidden that become a random piece; the rest stay.
        rule: ``count``: round(probability * words), at least one (VLP); ``bernoulli``: each by its own coin (BERT).
        limit: at most so many a sentence with ``count``; null for no limit. 3 as published for captions.
        end: whether the final separator may be hidden, so that the model learns to stop.
        drop_worst: share of the examples with the largest losses that are left out of a step (VLP, off by default).
        view: the view whose words are hidden.
        roles: hide words of these roles, as in ``mlm``.
        role_share: of the sentences that have such words, how many are masked by role.
        phrase: hide whole phrases, as in ``mlm``.
    """

    paper = "DiMBERT, Liu et al. 2021, section 3.2; VLP, Zhou et al. 2020, section 3.2 and its seq2seq_loader"
    requires = frozenset({"fuse", "generate"})
    changeable = frozenset(
        ("bidirectional", "probability", "mask_share", "random_share", "rule", "limit", "end", *ROLE_OPTIONS)
    )
    share: ClassVar[float] = 0.25

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        bidirectional: float | None = None,
        probability: float = 0.15,
        mask_share: float = 0.8,
        random_share: float = 0.1,
        rule: Literal["count", "bernoulli"] = "count",
        limit: int | None = 3,
        end: bool = True,
        drop_worst: float = 0.0,
        view: str = "corrupted",
        roles: list[RoleSpec] = [],  # noqa: B006 (a schema's default)
        role_share: float = 1.0,
        phrase: bool = False,
    ) -> None:
        super().__init__(model, data_spec)
        share = self.share if bidirectional is None else bidirectional
        hidden = mask_share + random_share
        shares = {"bidirectional": share, "probability": probability, "mask_share + random_share": hidden}
        wrong = [f"{name} {value}" for name, value in shares.items() if not 0 <= value <= 1]
        if wrong or not 0 <= drop_worst < 1:
            got = ", ".join(wrong) or f"drop_worst {drop_worst}"
            raise ComponentError("A share must lie between 0 and 1 (`drop_worst` below 1).", where="blm-s2slm", got=got)
        self.view, self.drop_worst = view, drop_worst
        options: dict[str, Any] = {"rule": rule, "limit": limit, "end": end, "view": view}
        options["picker"] = role_picker(roles, role_share, phrase)
        self._corruption = MaskCaption(data_spec, probability, (mask_share, random_share), share, **options)

    def corruption(self) -> Corruption:
        return self._corruption

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        view = step.view(self.view)
        if view.text is None or MASKED_WORDS not in view.mask_labels:
            return ObjectiveOutput({})
        labels = view.mask_labels[MASKED_WORDS].index_select(0, view.text_rows)  # (B, T)
        hidden = step.fused(self.view, rows="text").text.hidden
        masked = (labels.flatten() >= 0).nonzero()[:, 0]  # (K,)
        states = hidden.flatten(0, 1).index_select(0, masked)  # (K, D)
        logits = full_precision(step.model.word_scores(states))  # (K, V)
        truth = labels.flatten().index_select(0, masked)
        losses = F.cross_entropy(logits, truth, reduction="none")
        example = masked // labels.shape[1]
        metrics = {"accuracy": Mean.of((logits.argmax(-1) == truth).float())}
        if CAUSAL in view.mask_labels:
            causal = view.mask_labels[CAUSAL].bool().index_select(0, example)
            metrics |= {"blm": Mean.of(losses.detach(), ~causal), "s2slm": Mean.of(losses.detach(), causal)}
        kept = None
        if self.training and self.drop_worst:  # terms of the examples with the smaller sums
            sums = losses.new_zeros(len(labels)).index_add(0, example, losses.detach())  # (B,)
            best = sums.topk(int(len(labels) * (1 - self.drop_worst)), largest=False).indices
            kept = torch.isin(example, best)  # (K,)
        return ObjectiveOutput({"words": Mean.of(losses, kept)}, metrics=metrics)


class Bidirectional(CaptionModelling):
    """Bidirectional language modelling alone: words from the pictures and all other words (VLP, DiMBERT)."""

    share = 1.0


class SequenceToSequence(CaptionModelling):
    """Sequence-to-sequence language modelling alone: words from the pictures and the words on the left (captioning)."""

    share = 0.0
