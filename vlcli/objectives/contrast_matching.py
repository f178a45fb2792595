"""Matching with the negatives that contrast finds hardest, from the batches of all processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vlcli.nn import DataSpec, EncoderOutput, ForwardPasses, Model, build_head
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision
from vlcli.objectives.negatives import draw, gather_states, gumbel, stack_states


class ContrastMatching(Objective):
    """Image-text matching with one hard picture a sentence and one hard sentence a picture.

    Candidates are those of all processes (``pool: all``) or of this one; they are drawn in proportion to the softmax of
    the contrast's scores, from noise that follows from seed, step, example and candidate, so that the number of
    processes changes nothing. Another sentence of the same picture, or another picture of the same sentence, is no
    negative unless ``same: allowed``. An example without any negative (a batch of one) counts as a positive alone. The
    positives and both sorts of negatives are one pass.

    Args:
        model: fuses the pairs.
        data_spec: not used.
        pool: where negatives come from.
        same: whether other captions of one picture are negatives, as in the released codes of VLMo and ALBEF.
        sampler: ``softmax``: drawn; ``best``: the highest score.
        head: a named head instead of the model's own for the role ``matching``.
        view: the view it reads.
    """

    paper = "VLMo, Bao et al. 2022, section 3.2 (global hard negatives); ALBEF, Li et al. 2021, section 3.2"
    requires = frozenset({"fuse"})
    reads: ClassVar[tuple[str, ...]] = ("contrast|sigmoid-contrast|momentum-contrast|anchor-alignment|bag-contrast",)

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        pool: Literal["all", "own"] = "all",
        same: Literal["excluded", "allowed"] = "excluded",
        sampler: Literal["softmax", "best"] = "softmax",
        head: str | None = None,
        view: str = "clean",
    ) -> None:
        super().__init__(model, data_spec)
        self.pool, self.same, self.sampler, self.view = pool, same, sampler, view
        self.head = build_head(model, "matching", model.pooled_dim, 2, head)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        found = others["contrast"].outputs
        text, image = step.fusible(self.view)
        text_rows, image_rows = step.pairs(self.view)
        texts, images = text.select(text_rows), image.select(image_rows)
        all_texts, all_images = (texts, images) if self.pool == "own" else self._everyone(step, texts, images)
        with_picture, picture = self._negatives(step, found, "text_to_image", "images")
        with_sentence, sentence = self._negatives(step, found, "image_to_text", "texts")
        pairs = [
            (texts, images),
            (texts.select(with_picture), all_images.select(picture)),
            (all_texts.select(sentence), images.select(with_sentence)),
        ]
        left, right = (stack_states([pair[side] for pair in pairs]) for side in (0, 1))
        fused = step.fuse_states(left, right, rows="pooled")
        logits = full_precision(self.head(fused.pooled))  # (P, 2)
        truth = (torch.arange(len(logits), device=logits.device) < len(text_rows)).long()
        loss = F.cross_entropy(logits, truth, reduction="none")
        outputs = {"logits": logits, "pictures": picture, "sentences": sentence}
        return ObjectiveOutput(
            {"matching": Mean.of(loss)}, outputs, {"accuracy": Mean.of((logits.argmax(1) == truth).float())}
        )

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``logits`` (B, 2): column 1 speaks for a match
        return {"logits": self.head(step.fused(self.view, rows="pooled").pooled)}

    @staticmethod
    def _everyone(
        step: ForwardPasses, texts: EncoderOutput, images: EncoderOutput
    ) -> tuple[EncoderOutput, EncoderOutput]:
        return gather_states(texts, step.gather), gather_states(images, step.gather)

    def _negatives(
        self, step: ForwardPasses, found: Mapping[str, Tensor], scores: str, other: str
    ) -> tuple[Tensor, Tensor]:
        own, ids = found["own"], found[other]
        values, allowed = found[scores], self._allowed(found)
        if self.pool == "own":
            values, allowed, ids = values[:, own], allowed[:, own], ids[own]
        noise = None
        if self.sampler == "softmax":
            # Two draws an example: one for its picture, one for its sentence.
            seeds = step.batch.seeds.to(ids.device) * 2 + (other == "texts")
            noise = gumbel(seeds, ids)
        return draw(values, allowed, noise)

    def _allowed(self, found: Mapping[str, Tensor]) -> Tensor:
        # (B, N) pairs that may be shown as wrong
        own, texts, images = found["own"], found["texts"], found["images"]
        itself = torch.arange(len(texts), device=own.device)[None] == own[:, None]
        if self.same == "allowed":
            return ~itself
        return ~(itself | (texts[own][:, None] == texts[None]) | (images[own][:, None] == images[None]))
