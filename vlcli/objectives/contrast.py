"""Image-text contrast: a sentence and its picture are closer than all other pairs of the batch, over all processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, EncoderOutput, ForwardPasses, Model, initialise
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision
from vlcli.objectives.negatives import ids_of

Positives = Literal["own", "shared", "masked"]


@dataclass
class Known:
    """Who is who, over all processes.

    Attributes:
        texts: (N,) ids of the sentences of all examples, in rank order.
        images: (N,) ids of their pictures.
        own: (B,) where this process's examples stand among them.
    """

    texts: Tensor
    images: Tensor
    own: Tensor

    @classmethod
    def of(cls, step: ForwardPasses, view: str) -> Known:
        """Gather the ids of a step's examples."""
        chosen, (text_rows, image_rows) = step.view(view), step.pairs(view)
        assert chosen.text is not None
        assert chosen.images is not None
        texts, images = ids_of(chosen.text.keys, text_rows), ids_of(chosen.images.keys, image_rows)
        counts = step.gather(torch.tensor([len(texts)], device=texts.device))
        start = int(counts[: step.rank].sum())
        own = torch.arange(start, start + len(texts), device=texts.device)
        return cls(step.gather(texts), step.gather(images), own)

    @property
    def together(self) -> Tensor:
        """(B, N) pairs that belong together: one sentence, or one picture."""
        same_text = self.texts[self.own][:, None] == self.texts[None]
        return same_text | (self.images[self.own][:, None] == self.images[None])


def dealt_order(counts: Tensor) -> Tensor:
    """(N,) which gathered row comes first, second ... where one process holds all examples of a batch.

    Examples are dealt to the processes in turn, while gathered rows lie in rank order.

    Args:
        counts: (processes,) examples of each.

    >>> dealt_order(torch.tensor([3, 2])).tolist()
    [0, 3, 1, 4, 2]
    """
    turns = torch.cat([torch.arange(count, device=counts.device) for count in counts.tolist()])
    return turns.argsort(stable=True)


class Contrast(Objective):
    """Image-text contrast (InfoNCE) with a learned temperature, over the examples of all processes.

    Similarities are cosines of projected pooled vectors times exp(scale). A model that gives a second vector of each
    (``EncoderOutput.extra["fused"]``: VLMo's vision-language path) gets a second pair of projections and a second
    temperature; the two losses are averaged, and only the first one's similarities choose hard negatives. A model with
    projections and a temperature of its own (``Model.similarity``) gives the vectors and the scale as they are.

    Args:
        model: gives the vectors.
        data_spec: not used.
        width: of the shared space; None: the model's own.
        bias: whether the projections have one (ALBEF).
        temperature: to begin with; the scale is log(1 / temperature).
        learned: whether the temperature is learned.
        largest: bound of exp(scale) (CLIP: 100); None: none.
        second: contrast the second vectors too, where the model gives them.
        positives: whose pair counts as right: the example's own; any pair of one picture or sentence, in equal shares
            (``shared``); or the own, and such pairs are left out of the wrong ones (``masked``).
        as_released: the gradient as VLMo's code has it, where other processes' vectors are constants: over several
            processes the encoders' gradient is divided by their number, the temperature's is not.
        view: the view it reads.
    """

    paper = "CLIP, Radford et al. 2021; VLMo, Bao et al. 2022, section 3.2; ALBEF, Li et al. 2021, Eq. 1"
    requires = frozenset({"text", "image"})

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        width: int | None = None,
        bias: bool = False,
        temperature: float = 0.07,
        learned: bool = True,
        largest: float | None = None,
        second: bool = True,
        positives: Positives = "own",
        as_released: bool = False,
        view: str = "clean",
    ) -> None:
        super().__init__(model, data_spec)
        if temperature <= 0:
            raise ComponentError("A temperature must be above 0.", where="contrast.temperature", got=str(temperature))
        self.positives, self.as_released, self.view, self.largest = positives, as_released, view, largest
        self.text, self.image, self.scale = self._space(model, width or self.dim, bias, temperature, learned)
        self.twice = second and bool(getattr(model, "second_path", False))
        if self.twice:
            self.fused_text, self.fused_image = (nn.Linear(self.dim, width or self.dim, bias=bias) for _ in range(2))
            self.fused_scale = nn.Parameter(torch.tensor(math.log(1 / temperature)), requires_grad=learned)
        for module in self.modules():
            initialise(module, model.init_std)

    def _space(
        self, model: Model, width: int, bias: bool, temperature: float, learned: bool
    ) -> tuple[nn.Module, nn.Module, nn.Parameter]:
        lent = model.similarity()
        if lent is not None:
            if width != self.dim:
                what = "The model has projections of its own, so the objective has no width."
                hint = "leave out width, or set the width of the model"
                raise ComponentError(what, where="contrast.width", got=str(width), expected=str(self.dim), hint=hint)
            return nn.Identity(), nn.Identity(), lent[0]
        text, image = (nn.Linear(self.dim, width, bias=bias) for _ in range(2))
        return text, image, nn.Parameter(torch.tensor(math.log(1 / temperature)), requires_grad=learned)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        known = Known.of(step, self.view)
        loss, scores = self._both_ways(step, known, second=False)
        if self.twice:
            loss = (loss + self._both_ways(step, known, second=True)[0]) / 2
        outputs = {
            "image_to_text": scores[0].detach(),
            "text_to_image": scores[1].detach(),
            "texts": known.texts,
            "images": known.images,
            "own": known.own,
        }
        right = (scores[0].argmax(1) == known.own).float()
        metrics = {"image_to_text": Mean.of(right), "temperature": Mean.of(1 / self._factor(self.scale.detach())[None])}
        return ObjectiveOutput({"contrast": Mean.of(loss)}, outputs, metrics)

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``text_embedding``, ``image_embedding``: normalised vectors of each sentence and picture, (B, width) each
        text_rows, image_rows = step.pairs(self.view)
        texts, images = self.unique(step)
        return {"text_embedding": texts[text_rows], "image_embedding": images[image_rows]}

    def embed(self, step: ForwardPasses, side: Literal["text", "image"]) -> Tensor:
        if side == "text":
            return self.vectors(step.text(self.view, rows="pooled"), None)[0]
        return self.vectors(None, step.image(self.view, rows="pooled"))[1]

    def vectors(
        self, text: EncoderOutput | None, image: EncoderOutput | None, second: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Normalised projections of unique texts (N, width) and images (M, width); what is None stays empty."""
        heads = (self.fused_text, self.fused_image) if second else (self.text, self.image)
        made = [
            torch.empty(0) if states is None else full_precision(head(summary(states, second)))
            for head, states in zip(heads, (text, image), strict=True)
        ]
        return F.normalize(made[0], dim=-1), F.normalize(made[1], dim=-1)

    def unique(self, step: ForwardPasses, second: bool = False) -> tuple[Tensor, Tensor]:
        """Vectors of a step's unique sentences (N, width) and pictures (M, width)."""
        states = step.text(self.view, rows="pooled"), step.image(self.view, rows="pooled")
        return self.vectors(*states, second)

    def _both_ways(self, step: ForwardPasses, known: Known, second: bool) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        # Losses per example (B,), and scores of pictures against all sentences and the other way (B, N)
        text_rows, image_rows = step.pairs(self.view)
        texts, images = self.unique(step, second)
        own_texts, own_images = texts[text_rows], images[image_rows]
        all_texts, all_images = step.gather(own_texts), step.gather(own_images)
        if self.as_released:
            return self._released(own_texts, own_images, all_texts, all_images, known, second)
        scores = self._scores(own_images, all_texts, second), self._scores(own_texts, all_images, second)
        return (self._loss(scores[0], known) + self._loss(scores[1], known)) / 2, scores

    def _released(
        self, texts: Tensor, images: Tensor, all_texts: Tensor, all_images: Tensor, known: Known, second: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        whole_texts = all_texts.detach().index_copy(0, known.own, texts)
        whole_images = all_images.detach().index_copy(0, known.own, images)
        forth = self._scores(whole_images, whole_texts, second)
        everyone = Known(known.texts, known.images, torch.arange(len(forth), device=forth.device))
        loss = (self._loss(forth, everyone) + self._loss(forth.T, everyone)) / 2
        return loss, (forth[known.own], forth.T[known.own])

    def _scores(self, own: Tensor, other: Tensor, second: bool) -> Tensor:
        return self._factor(self.fused_scale if second else self.scale) * own @ other.T

    def _factor(self, scale: Tensor) -> Tensor:
        factor = full_precision(scale).exp()
        return factor if self.largest is None else factor.clamp(max=self.largest)

    def _loss(self, scores: Tensor, known: Known) -> Tensor:
        # (B,) cross-entropy of scores (B, N)
        own = known.own
        if self.positives == "own":
            return F.cross_entropy(scores, own, reduction="none")
        together = known.together
        if self.positives == "masked":
            off = together.scatter(1, own[:, None], False)
            return F.cross_entropy(scores.masked_fill(off, -torch.inf), own, reduction="none")
        shares = together.to(scores.dtype)
        return F.cross_entropy(scores, shares / shares.sum(1, keepdim=True), reduction="none")


def summary(states: EncoderOutput, second: bool = False) -> Tensor:
    """One vector a row: the model's own, the second path's, or the mean over real tokens."""
    if second:
        return states.extra["fused"]
    if states.pooled is not None:
        return states.pooled
    valid = states.layout.expand(len(states.hidden)).valid[..., None].to(states.hidden.dtype)
    return (states.hidden * valid).sum(1) / valid.sum(1).clamp(min=1)
