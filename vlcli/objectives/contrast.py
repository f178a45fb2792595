"""Image-text contrast over the batches of all processes, by a softmax (CLIP) or by a sigmoid of each pair (SigLIP)."""

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
SECOND = "fused_{}"  # names of the projections of second vectors


@dataclass
class Known:
    """Ids of the examples of all processes."""

    texts: Tensor  # (N,) ids of the sentences of all examples, in rank order
    images: Tensor  # (N,) ids of their pictures
    own: Tensor  # (B,) indices of this process's examples among them

    @classmethod
    def of(cls, step: ForwardPasses, view: str) -> Known:
        chosen, (text_rows, image_rows) = step.view(view), step.pairs(view)
        assert chosen.text is not None
        assert chosen.images is not None
        texts, images = ids_of(chosen.text.keys, text_rows), ids_of(chosen.images.keys, image_rows)
        counts = step.gather(torch.tensor([len(texts)], device=texts.device))
        own = counts[: step.rank].sum() + torch.arange(len(texts), device=texts.device)
        return cls(step.gather(texts), step.gather(images), own)

    @property
    def together(self) -> Tensor:
        """(B, N) pairs that belong together: one sentence, or one picture."""
        same_text = self.texts[self.own][:, None] == self.texts[None]
        return same_text | (self.images[self.own][:, None] == self.images[None])

    def outputs(self, image_to_text: Tensor, text_to_image: Tensor) -> dict[str, Tensor]:
        """Return what ``contrast-matching`` reads: scores (B, N) of both directions, and the ids."""
        scores = {"image_to_text": image_to_text.detach(), "text_to_image": text_to_image.detach()}
        return {**scores, "texts": self.texts, "images": self.images, "own": self.own}

    def hits(self, scores: Tensor) -> Mean:
        """Return the share of examples whose own pair has the highest of scores (B, N)."""
        return Mean.of((scores.argmax(1) == self.own).float())


def dealt_order(counts: Tensor) -> Tensor:
    """Return the order (N,) in which one process would hold rows that were gathered by rank.

    Examples are dealt to the processes in turn; ``counts``: (processes,) examples of each.

    >>> dealt_order(torch.tensor([3, 2])).tolist()
    [0, 3, 1, 4, 2]
    """
    turns = torch.cat([torch.arange(count, device=counts.device) for count in counts.tolist()])
    return turns.argsort(stable=True)


class Embedder(Objective):
    """Base of objectives that project pooled vectors by ``text`` and ``image``, ``fused_text``, ``text_copy`` ..."""

    view: str

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        texts, images = self.paired(step)
        return {"text_embedding": texts, "image_embedding": images}

    def embed(self, step: ForwardPasses, side: Literal["text", "image"], head: str = "{}") -> Tensor:
        states = (step.text if side == "text" else step.image)(self.view, rows="pooled")
        vectors = summary(states, second=head == SECOND)
        return F.normalize(full_precision(getattr(self, head.format(side))(vectors)), dim=-1)

    def paired(self, step: ForwardPasses, head: str = "{}") -> tuple[Tensor, Tensor]:
        """Return normalised vectors (B, width) of each example's sentence and picture, by the heads of this form."""
        text_rows, image_rows = step.pairs(self.view)
        return self.embed(step, "text", head)[text_rows], self.embed(step, "image", head)[image_rows]


class Contrast(Embedder):
    """Image-text contrast (InfoNCE) with a learned temperature, over the examples of all processes.

    Similarities are cosines of projected pooled vectors times exp(scale). A model with second vectors
    (``EncoderOutput.extra["fused"]``: VLMo's vision-language path) gets a second pair of projections and a second
    temperature; the two losses are averaged, and only the first similarities choose hard negatives. A model with
    projections and a temperature of its own (``Model.similarity``) keeps them.

    Args:
        width: of the shared space; None: the model's own.
        bias: whether the projections have one (ALBEF).
        temperature: initial value; the scale is log(1 / temperature).
        learned: whether the temperature is learned.
        largest: bound of exp(scale) (CLIP: 100); None: none.
        second: contrast the second vectors too, where the model gives them.
        positives: the example's ``own`` pair; all pairs of its picture or sentence in equal shares (``shared``); or the
            own, where these pairs are no negatives (``masked``).
        as_released: the gradient of VLMo's code, where other processes' vectors are constants: over several processes
            the encoders' gradient is divided by their number, the temperature's is not.
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
        self.positives, self.as_released, self.view, self.largest = positives, as_released, view, largest
        width, start, lent = width or self.dim, torch.tensor(math.log(1 / temperature)), model.similarity()
        if lent is not None and width != self.dim:
            what = "The model has projections of its own, so the objective has no width."
            hint = "leave out width, or set the width of the model"
            raise ComponentError(what, where="contrast.width", got=str(width), expected=str(self.dim), hint=hint)
        for side in ("text", "image"):
            self.add_module(side, nn.Linear(self.dim, width, bias=bias) if lent is None else nn.Identity())
        self.scale = nn.Parameter(start, requires_grad=learned) if lent is None else lent[0]
        self.twice = second and bool(getattr(model, "second_path", False))
        if self.twice:
            self.fused_text, self.fused_image = (nn.Linear(self.dim, width, bias=bias) for _ in range(2))
            self.fused_scale = nn.Parameter(start.clone(), requires_grad=learned)
        for module in self.modules():
            initialise(module, model.init_std)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        known = Known.of(step, self.view)
        loss, scores = self._both_ways(step, known, second=False)
        if self.twice:
            loss = (loss + self._both_ways(step, known, second=True)[0]) / 2
        return ObjectiveOutput({"contrast": Mean.of(loss)}, known.outputs(*scores), self._metrics(known, scores[0]))

    def _metrics(self, known: Known, image_to_text: Tensor) -> dict[str, Mean]:
        temperature = 1 / self._factor(self.scale.detach())[None]
        return {"image_to_text": known.hits(image_to_text), "temperature": Mean.of(temperature)}

    def _both_ways(self, step: ForwardPasses, known: Known, second: bool) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        # losses per example (B,), and scores of pictures against all sentences and the other way (B, N)
        texts, images = self.paired(step, SECOND if second else "{}")  # (B, width)
        all_texts, all_images = step.gather(texts), step.gather(images)  # (N, width)
        if self.as_released:  # the loss over the whole matrix in every process, where only its rows carry a gradient
            all_texts = all_texts.detach().index_copy(0, known.own, texts)
            all_images = all_images.detach().index_copy(0, known.own, images)
            forth = self._scores(all_images, all_texts, second)  # (N, N)
            everyone = Known(known.texts, known.images, torch.arange(len(forth), device=forth.device))
            loss = (self._loss(forth, everyone) + self._loss(forth.T, everyone)) / 2
            return loss, (forth[known.own], forth.T[known.own])
        scores = self._scores(images, all_texts, second), self._scores(texts, all_images, second)
        return (self._loss(scores[0], known) + self._loss(scores[1], known)) / 2, scores

    def _scores(self, rows: Tensor, others: Tensor, second: bool = False) -> Tensor:
        return self._factor(self.fused_scale if second else self.scale) * rows @ others.T

    def _factor(self, scale: Tensor) -> Tensor:
        factor = full_precision(scale).exp()
        return factor if self.largest is None else factor.clamp(max=self.largest)

    def _loss(self, scores: Tensor, known: Known) -> Tensor:
        # (B,) cross-entropy of scores (B, N)
        if self.positives == "shared":
            shares = known.together.to(scores.dtype)
            return F.cross_entropy(scores, shares / shares.sum(1, keepdim=True), reduction="none")
        if self.positives == "masked":
            scores = scores.masked_fill(known.together.scatter(1, known.own[:, None], False), -torch.inf)
        return F.cross_entropy(scores, known.own, reduction="none")


def summary(states: EncoderOutput, second: bool = False) -> Tensor:
    """Return one vector a row: the model's pooled one, the second path's, or the mean over real tokens."""
    if second:
        return states.extra["fused"]
    if states.pooled is not None:
        return states.pooled
    valid = states.layout.valid[..., None].to(states.hidden.dtype)
    return (states.hidden * valid).sum(1) / valid.sum(1).clamp(min=1)


class SigmoidContrast(Contrast):
    """SigLIP's loss: one logistic regression for each pair of a sentence and a picture of the batch.

    The logit of a pair is exp(scale) times the cosine of the projected pooled vectors, plus a bias. The loss of an
    example is the sum over the pictures of all processes; the loss of the batch is the mean over its examples. A model
    with projections of its own (``Model.similarity``) lends its scale, and its bias if it has one.

    Args:
        offset: initial bias of the logits; -10 because nearly all pairs of a batch are wrong.
        learned: whether temperature and offset are learned.
        positives: the example's ``own`` pair; all pairs of its picture or sentence (``shared``); or the own, where
            these pairs count as neither right nor wrong (``masked``).
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
        fresh = nn.Parameter(torch.tensor(float(offset)), requires_grad=learned)
        self.offset = fresh if lent is None or lent[1] is None else lent[1]

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        # the sum over all pictures of -log sigmoid(+-logit), a mean over examples
        known = Known.of(step, self.view)
        texts, images = self.paired(step)  # (B, width)
        forth = self.logits(texts, step.gather(images))  # (B, N)
        with torch.no_grad():  # for hard negatives and the metric alone
            back = self.logits(images, step.gather(texts.detach()))
        loss = Mean.of(self._loss(forth, known))
        return ObjectiveOutput({"sigmoid-contrast": loss}, known.outputs(back, forth), self._metrics(known, back))

    def logits(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return the logits (B, N) of vectors (B, width) and (N, width)."""
        return self._scores(rows, others) + full_precision(self.offset)

    def _loss(self, scores: Tensor, known: Known) -> Tensor:
        # (B,) sums over the pictures
        itself = torch.zeros_like(scores, dtype=torch.bool).scatter(1, known.own[:, None], True)
        right = known.together if self.positives == "shared" else itself
        losses = -F.logsigmoid(torch.where(right, scores, -scores))
        if self.positives == "masked":
            losses = losses.masked_fill(known.together & ~itself, 0)
        return losses.sum(1)
