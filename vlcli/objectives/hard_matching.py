"""Matching against the other sentences and pictures of the batch, the likeliest mistakes first."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from vlcli.errors import DataError
from vlcli.nn import DataSpec, ForwardPasses, Model, build_head
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision


class HardMatching(Objective):
    """Matching with negatives out of the batch, drawn in proportion to how well the model thinks they match.

    For each example, ``negatives`` wrong pictures of its sentence and as many wrong sentences of its picture. They are
    drawn from ``candidates`` random ones each, scored by the model itself without gradient: a cross-encoder has no
    cheap similarity to draw by. With ``candidates`` equal to ``negatives`` they are random, nothing is scored twice.

    Args:
        model: the model it trains.
        data_spec: not needed.
        negatives: wrong pictures a sentence and wrong sentences a picture.
        candidates: how many are looked at to find them.
        head: a head of ``vlcli.nn.heads``; None takes the model's own for the role ``matching``.
        view: the view it reads.
    """

    paper = (
        "ALBEF, Li et al. 2021, section 3.2 (hard negatives within the batch); LXMERT 2019, section 3.1.3 (matching)"
    )
    requires = frozenset({"fuse"})

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        negatives: int = 1,
        candidates: int = 4,
        head: str | None = None,
        view: str = "clean",
    ) -> None:
        super().__init__(model, data_spec)
        self.negatives, self.candidates, self.view = negatives, max(candidates, negatives), view
        self.head = build_head(model, "matching", model.pooled_dim, 2, head)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        view = step.view(self.view)
        own_texts, own_images = view.text_rows, view.image_rows[:, 0]
        wrong = self._wrong(step, own_texts, own_images)
        texts = torch.cat([own_texts, *(pair[0] for pair in wrong)])
        images = torch.cat([own_images, *(pair[1] for pair in wrong)])
        logits = full_precision(self.head(step.fuse_rows(texts, images, self.view).pooled))  # (P, 2)
        truth = (torch.arange(len(texts), device=logits.device) < len(own_texts)).long()
        loss = functional.cross_entropy(logits, truth, reduction="none")
        right = (logits.argmax(1) == truth).float()
        return ObjectiveOutput({"matching": Mean.of(loss)}, {"logits": logits}, {"accuracy": Mean.of(right)})

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``logits`` (B, 2): column 1 speaks for a match
        return {"logits": self.head(step.fused(self.view).pooled)}

    def _wrong(self, step: ForwardPasses, texts: Tensor, images: Tensor) -> list[tuple[Tensor, Tensor]]:
        allowed = _apart(texts, images)
        if not bool(allowed.any()):
            raise DataError(
                "A batch holds one picture only: there are no negatives in it.", hint="raise batch_size, or shuffle"
            )
        rng = torch.Generator().manual_seed(int(step.batch.seeds[0]) & 0x7FFFFFFFFFFF)
        return [
            self._pick(step, texts, images, allowed, rng, swap_images=True),
            self._pick(step, texts, images, allowed, rng, swap_images=False),
        ]

    def _pick(
        self,
        step: ForwardPasses,
        texts: Tensor,
        images: Tensor,
        allowed: Tensor,
        rng: torch.Generator,
        *,
        swap_images: bool,
    ) -> tuple[Tensor, Tensor]:
        chance = allowed if swap_images else allowed.T
        rows = chance.any(1).nonzero()[:, 0]  # examples that have a negative at all
        count = min(self.candidates, chance.shape[1])
        drawn = torch.multinomial(chance[rows].float() + 1e-9, count, generator=rng)  # (N, C) examples
        # Where fewer are wrong than asked for, right ones came last: the first wrong one stands in.
        drawn = torch.where(chance[rows].gather(1, drawn), drawn, drawn[:, :1])
        own = rows[:, None].expand_as(drawn).to(texts.device)
        other = drawn.to(texts.device)
        pairs = (texts[own], images[other]) if swap_images else (texts[other], images[own])
        if count <= self.negatives:
            return pairs[0].reshape(-1), pairs[1].reshape(-1)
        chosen = self._hardest(step, pairs, rng)
        return pairs[0].gather(1, chosen).reshape(-1), pairs[1].gather(1, chosen).reshape(-1)

    @torch.no_grad()
    def _hardest(self, step: ForwardPasses, pairs: tuple[Tensor, Tensor], rng: torch.Generator) -> Tensor:
        # (N, negatives) places, drawn in proportion to the probability of a match
        fused = step.fuse_rows(pairs[0].reshape(-1), pairs[1].reshape(-1), self.view)
        match = full_precision(self.head(fused.pooled)).softmax(-1)[:, 1].reshape(pairs[0].shape)
        return torch.multinomial(match.cpu() + 1e-9, self.negatives, generator=rng).to(pairs[0].device)


def _apart(texts: Tensor, images: Tensor) -> Tensor:
    # (B, B) whether example i's sentence and example j's picture are not known to belong together
    together = set(zip(texts.tolist(), images.tolist(), strict=True))
    pairs = [[(text, image) not in together for image in images.tolist()] for text in texts.tolist()]
    return torch.tensor(pairs, dtype=torch.bool)
