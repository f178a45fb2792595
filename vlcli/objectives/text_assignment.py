"""Text assignment: which of two pictures a sentence describes, if any; prepares a model for pairs of pictures."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, EncoderOutput, ForwardPasses, Model, build_head, initialise
from vlcli.objectives.answering import draws
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, classified, full_precision
from vlcli.objectives.contrast import summary
from vlcli.objectives.negatives import gumbel, ids_of

FIRST, SECOND, NEITHER = 0, 1, 2


class TextAssignment(Objective):
    """Which of two pictures a sentence speaks of: the first, the second or neither (ALBEF's preparation for NLVR2).

    The data are pairs of a sentence and its picture. Beside it stands another picture of the batch, in proportion to
    how alike their vectors are; with the probability ``neither`` both pictures are others. The projection that gives
    the vectors is that of a contrast before and is not trained. Pictures of one key are not others of each other; where
    a batch has too few others, an example is given its own picture, or left out.

    Args:
        neither: how often neither picture is the sentence's.
        width: of the vectors.
        temperature: of their likeness.
        head: a named head instead of a linear one.
        view: the view it reads.
    """

    paper = "ALBEF, Li et al. 2021, section 5 (NLVR2) and appendix A: text assignment"
    requires = frozenset({"image", "fuse"})
    init_from = ("momentum-contrast", "contrast", "anchor-alignment")

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        neither: float = 1 / 3,
        width: int = 256,
        temperature: float = 0.07,
        head: str | None = None,
        view: str = "clean",
    ) -> None:
        super().__init__(model, data_spec)
        if not model.many_images:
            raise ComponentError(
                "Text assignment needs a model that looks at two pictures in one chain.",
                where="objective text-assignment",
                got=type(model).__name__,
                hint="with albef: model: {images: 2}",
            )
        self.neither, self.temperature, self.view = neither, temperature, view
        self.image = nn.Linear(self.dim, width).requires_grad_(False)
        initialise(self.image, model.init_std)
        self.head = build_head(model, "assignment", model.pooled_dim, 3, head)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        text, image = step.fusible(self.view)
        text_rows, image_rows = step.pairs(self.view)
        texts, images = text.select(text_rows), image.select(image_rows)
        pairs, truth = self._pairs(step, images, image_rows)
        rows = (truth >= 0).nonzero()[:, 0]
        if not len(rows):
            return ObjectiveOutput({"text-assignment": Mean(images.hidden.sum() * 0, truth.new_zeros(()).float())})
        fused = step.fuse_states(texts.select(rows), step.chain(images, pairs[rows]), rows="pooled")
        logits = full_precision(self.head(fused.pooled))  # (P, 3)
        loss, right = classified(logits, truth[rows])
        outputs = {"logits": logits, "pairs": pairs, "truth": truth}
        return ObjectiveOutput({"text-assignment": loss}, outputs, {"accuracy": right})

    @torch.no_grad()
    def _pairs(self, step: ForwardPasses, images: EncoderOutput, rows: Tensor) -> tuple[Tensor, Tensor]:
        # Two examples' pictures for each example (B, 2), and which is its own (B,); -1: there is no other picture
        view, device = step.view(self.view), images.hidden.device
        assert view.images is not None
        keys = ids_of(view.images.keys, rows).to(device)
        vectors = F.normalize(full_precision(self.image(summary(images))), dim=-1)
        apart = keys[:, None] != keys[None]  # (B, B)
        noise = gumbel(step.batch.seeds.to(device), keys)
        # The two highest of score plus noise are two draws without putting back.
        total = ((vectors @ vectors.T / self.temperature).double() + noise).masked_fill(~apart, -torch.inf)
        best = total.topk(min(2, len(total)), 1).indices
        best = best if best.shape[1] == 2 else best.expand(-1, 2)
        count, chance = apart.sum(1), torch.tensor(draws(step.batch.seeds), device=device)
        neither = (chance < self.neither) & (count > 1)
        second = (chance - self.neither) / (1 - self.neither) < 0.5
        itself = torch.arange(len(keys), device=device)
        truth = torch.where(neither, NEITHER, torch.where(second, SECOND, FIRST))
        left = torch.where(neither, best[:, 0], torch.where(second, best[:, 0], itself))
        right = torch.where(neither, best[:, 1], torch.where(second, itself, best[:, 0]))
        return torch.stack([left, right], 1), truth.masked_fill(count == 0, -1)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        # of a contrast, its projection of pictures alone
        fresh = self.state_dict()
        return {name: value for name, value in state.items() if name in fresh}
