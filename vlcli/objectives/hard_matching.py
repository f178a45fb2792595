"""Matching with hard negatives of the batch, chosen by the model itself or by a contrast's scores."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from vlcli.errors import DataError
from vlcli.nn import DataSpec, ForwardPasses, FusionOutput, Model, build_head
from vlcli.objectives.base import Objective, ObjectiveOutput, classified, full_precision
from vlcli.objectives.negatives import draw, gather_states, gumbel, stack_states


class MatchingHead(Objective):
    """Base of matching with negatives of the batch.

    Args:
        head: a head of ``vlcli.nn.heads``; None: the model's own for the role ``matching``.
        view: the view it reads.
    """

    requires = frozenset({"fuse"})

    def __init__(self, model: Model, data_spec: DataSpec, *, head: str | None = None, view: str = "clean") -> None:
        super().__init__(model, data_spec)
        self.view, self.head = view, build_head(model, "matching", model.pooled_dim, 2, head)

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        return {"logits": self.head(step.fused(self.view, rows="pooled").pooled)}

    def outcome(self, fused: FusionOutput, right: int, **outputs: Tensor) -> ObjectiveOutput:
        """Return loss and accuracy of pairs of which the first ``right`` belong together."""
        logits = full_precision(self.head(fused.pooled))  # (P, 2)
        truth = (torch.arange(len(logits), device=logits.device) < right).long()
        loss, accuracy = classified(logits, truth)
        return ObjectiveOutput({"matching": loss}, {"logits": logits, **outputs}, {"accuracy": accuracy})


class HardMatching(MatchingHead):
    """Matching with negatives of the batch, drawn in proportion to the model's own probability of a match.

    Args:
        negatives: wrong pictures of each sentence, and wrong sentences of each picture.
        candidates: random ones that are scored, without gradient, to draw each of them from; as many as ``negatives``:
            negatives are random and nothing is scored twice.
    """

    paper = "ALBEF, Li et al. 2021, section 3.2 (hard negatives within the batch); LXMERT 2019, section 3.1.3"

    def __init__(
        self, model: Model, data_spec: DataSpec, *, negatives: int = 1, candidates: int = 4, **options: Any
    ) -> None:
        super().__init__(model, data_spec, **options)
        self.negatives, self.candidates = negatives, max(candidates, negatives)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        view = step.view(self.view)
        right = view.text_rows, view.image_rows[:, 0]
        all_texts, all_images = map(torch.cat, zip(right, *self.wrong_pairs(step, *right), strict=True))
        return self.outcome(step.fuse_rows(all_texts, all_images, self.view), len(view.text_rows))

    def wrong_pairs(self, step: ForwardPasses, texts: Tensor, images: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return (text rows, image rows) of pairs with wrong pictures, and with wrong sentences, (K,) each."""
        together = set(zip(texts.tolist(), images.tolist(), strict=True))
        allowed = torch.tensor([[(t, i) not in together for i in images.tolist()] for t in texts.tolist()])  # (B, B)
        if not bool(allowed.any()):
            what, hint = "A batch holds one picture only: there are no negatives in it.", "raise batch_size, or shuffle"
            raise DataError(what, hint=hint)
        rng = torch.Generator().manual_seed(int(step.batch.seeds[0]) & 0x7FFFFFFFFFFF)
        return [self._pick(step, (texts, images), allowed, rng, swapped) for swapped in (1, 0)]

    def _pick(
        self, step: ForwardPasses, sides: tuple[Tensor, Tensor], allowed: Tensor, rng: torch.Generator, swapped: int
    ) -> tuple[Tensor, Tensor]:
        # pairs (text rows, image rows) that do not belong together: 1 exchanges the image, 0 the text
        chance = allowed if swapped else allowed.T
        rows = chance.any(1).nonzero()[:, 0]  # examples that have a negative at all
        count = min(self.candidates, chance.shape[1])
        drawn = torch.multinomial(chance[rows].float() + 1e-9, count, generator=rng)  # (N, C) examples
        # Where fewer are wrong than asked for, right ones came last: the first wrong one stands in.
        drawn = torch.where(chance[rows].gather(1, drawn), drawn, drawn[:, :1])
        device = sides[0].device
        pairs = [side[rows[:, None].expand_as(drawn).to(device)] for side in sides]
        pairs[swapped] = sides[swapped][drawn.to(device)]
        if count > self.negatives:  # in proportion to the probability of a match
            with torch.no_grad():
                fused = step.fuse_rows(pairs[0].reshape(-1), pairs[1].reshape(-1), self.view)
                match = full_precision(self.head(fused.pooled)).softmax(-1)[:, 1].reshape(pairs[0].shape)
            hardest = torch.multinomial(match.cpu() + 1e-9, self.negatives, generator=rng).to(device)
            pairs = [side.gather(1, hardest) for side in pairs]
        return pairs[0].reshape(-1), pairs[1].reshape(-1)


class ContrastMatching(MatchingHead):
    """Image-text matching with one hard picture a sentence and one hard sentence a picture, by a contrast's scores.

    Draws follow from seed, step, example and candidate, so that the number of processes changes nothing. An example
    without any negative (a batch of one) counts as a positive alone. Positives and negatives are one pass.

    Args:
        pool: candidates: those of ``all`` processes, or the process's ``own``.
        same: whether other captions of one picture are negatives, as in the released codes of VLMo and ALBEF.
        sampler: ``softmax``: drawn in proportion to the softmax of the scores; ``best``: the highest score.
    """

    paper = "VLMo, Bao et al. 2022, section 3.2 (global hard negatives); ALBEF, Li et al. 2021, section 3.2"
    reads: ClassVar[tuple[str, ...]] = ("contrast|sigmoid-contrast|momentum-contrast|anchor-alignment|bag-contrast",)

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        pool: Literal["all", "own"] = "all",
        same: Literal["excluded", "allowed"] = "excluded",
        sampler: Literal["softmax", "best"] = "softmax",
        **options: Any,
    ) -> None:
        super().__init__(model, data_spec, **options)
        self.pool, self.same, self.sampler = pool, same, sampler

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        contrast = others["contrast"].outputs
        text, image = step.fusible(self.view)
        text_rows, image_rows = step.pairs(self.view)
        texts, images = text.select(text_rows), image.select(image_rows)
        everyone = texts, images
        if self.pool == "all":
            everyone = gather_states(texts, step.gather), gather_states(images, step.gather)
        with_picture, picture = self._negatives(step, contrast, "text_to_image", "images")
        with_sentence, sentence = self._negatives(step, contrast, "image_to_text", "texts")
        left = stack_states([texts, texts.select(with_picture), everyone[0].select(sentence)])
        right = stack_states([images, everyone[1].select(picture), images.select(with_sentence)])
        fused = step.fuse_states(left, right, rows="pooled")
        return self.outcome(fused, len(text_rows), pictures=picture, sentences=sentence)

    def _negatives(
        self, step: ForwardPasses, contrast: Mapping[str, Tensor], scores: str, side: str
    ) -> tuple[Tensor, Tensor]:
        # rows of this process's examples that have a negative, and the candidate of each
        mine, texts, images, ids = contrast["own"], contrast["texts"], contrast["images"], contrast[side]
        forbidden = torch.arange(len(texts), device=mine.device)[None] == mine[:, None]  # (B, N)
        if self.same == "excluded":
            forbidden = forbidden | (texts[mine][:, None] == texts[None]) | (images[mine][:, None] == images[None])
        values, allowed = contrast[scores], ~forbidden
        if self.pool == "own":
            values, allowed, ids = values[:, mine], allowed[:, mine], ids[mine]
        # Two draws an example: one for its picture, one for its sentence.
        seeds = step.batch.seeds.to(ids.device) * 2 + (side == "texts")
        return draw(values, allowed, gumbel(seeds, ids) if self.sampler == "softmax" else None)
