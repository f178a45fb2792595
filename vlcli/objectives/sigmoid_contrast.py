"""Image-text contrast by a sigmoid: every pair of the batch is right or wrong by itself, over all processes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.nn import DataSpec, ForwardPasses, Model
from vlcli.objectives.base import Mean, ObjectiveOutput, full_precision
from vlcli.objectives.contrast import Contrast, Known, Positives


class SigmoidContrast(Contrast):
    """SigLIP's loss: one logistic regression for each pair of a sentence and a picture of the batch.

    The logit of a pair is exp(scale) times the cosine of the projected pooled vectors, plus a bias. The loss of an
    example is the sum over the pictures of all processes; the loss of the batch is the mean over its examples. A model
    with projections of its own (``Model.similarity``) lends its scale, and its bias if it has one.
    ``contrast-matching`` draws hard negatives by the logits.

    Args:
        model: gives the vectors.
        data_spec: not used.
        width: of the shared space; None: the model's own.
        bias: whether the projections have one.
        temperature: to begin with; the scale is log(1 / temperature).
        offset: the logits' bias to begin with; -10 because nearly all pairs of a batch are wrong.
        learned: whether temperature and offset are learned.
        positives: which pairs are right: the example's own; any pair of one picture or sentence (``shared``); or the
            own, and such pairs count as neither right nor wrong (``masked``).
        view: the view it reads.
    """

    paper = "SigLIP, Zhai et al., ICCV 2023, arXiv:2303.15343, Algorithm 1"

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        width: int | None = None,
        bias: bool = False,
        temperature: float = 0.1,
        offset: float = -10.0,
        learned: bool = True,
        positives: Positives = "own",
        view: str = "clean",
    ) -> None:
        options = {"temperature": temperature, "learned": learned, "second": False}
        super().__init__(model, data_spec, width=width, bias=bias, positives=positives, view=view, **options)  # type: ignore[arg-type]
        lent = model.similarity()
        own = nn.Parameter(torch.tensor(float(offset)), requires_grad=learned)
        self.offset = own if lent is None or lent[1] is None else lent[1]

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        known = Known.of(step, self.view)
        text_rows, image_rows = step.pairs(self.view)
        texts, images = self.unique(step)
        own_texts, own_images = texts[text_rows], images[image_rows]
        forth = self.logits(own_texts, step.gather(own_images))
        with torch.no_grad():  # for hard negatives and the metric alone
            back = self.logits(own_images, step.gather(own_texts.detach()))
        outputs = {
            "image_to_text": back,
            "text_to_image": forth.detach(),
            "texts": known.texts,
            "images": known.images,
            "own": known.own,
        }
        right = (back.argmax(1) == known.own).float()
        metrics = {"image_to_text": Mean.of(right), "temperature": Mean.of(1 / self._factor(self.scale.detach())[None])}
        return ObjectiveOutput({"sigmoid-contrast": Mean.of(self._loss(forth, known))}, outputs, metrics)

    def logits(self, own: Tensor, other: Tensor) -> Tensor:
        """Logits (B, N) of vectors (B, width) and (N, width)."""
        return self._scores(own, other, second=False) + full_precision(self.offset)

    def _loss(self, scores: Tensor, known: Known) -> Tensor:
        # (B,) sums over the pictures
        own = torch.zeros_like(scores, dtype=torch.bool).scatter(1, known.own[:, None], True)
        right = known.together if self.positives == "shared" else own
        losses = -F.logsigmoid(torch.where(right, scores, -scores))
        if self.positives == "masked":
            losses = losses.masked_fill(known.together & ~own, 0)
        return losses.sum(1)
