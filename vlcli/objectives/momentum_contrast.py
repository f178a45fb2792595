"""Image-text contrast against a momentum copy and a queue (MoCo, ALBEF)."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.nn import DataSpec, ForwardPasses, Model, initialise
from vlcli.objectives.base import Mean, ObjectiveOutput
from vlcli.objectives.contrast import Embedder, Known, dealt_order
from vlcli.objectives.momentum import COPY, MomentumHeads, momentum_copy


class MomentumContrast(MomentumHeads, Embedder):
    """Image-text contrast against the momentum copy's vectors of this batch and of a queue of earlier ones.

    Targets are mixed with the momentum copy's probabilities (``distill``). The queue takes batches of any size, and of
    several processes all vectors in the order of one process. Hard negatives (``contrast-matching``) read the scores.

    Args:
        width: of the shared space.
        temperature: initial value of the learned temperature.
        clamp: keep the temperature in [0.001, 0.5].
        queue: K, vectors of each modality that are kept.
        same: positives: the example's ``own`` pair; all examples of its ``image`` in equal shares (ALBEF's retrieval);
            or those of its sentence, too (``shared``).
        view: the view it reads.
    """

    paper = "ALBEF, Li et al. 2021, Eq. 1-2 and 5; MoCo, He et al. 2020"
    requires = frozenset({"text", "image"})

    image_queue: Tensor
    text_queue: Tensor
    image_ids: Tensor
    text_ids: Tensor
    filled: Tensor
    place: Tensor

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        width: int = 256,
        temperature: float = 0.07,
        clamp: bool = True,
        queue: int = 65536,
        same: Literal["own", "image", "shared"] = "own",
        view: str = "clean",
        **options: Any,
    ) -> None:
        super().__init__(model, data_spec, **options)
        self.same, self.view, self.clamp = same, view, clamp
        self.image, self.text = nn.Linear(self.dim, width), nn.Linear(self.dim, width)
        for module in (self.image, self.text):
            initialise(module, model.init_std)
        self.image_copy, self.text_copy = momentum_copy(self.image), momentum_copy(self.text)
        self.temperature = nn.Parameter(torch.tensor(temperature))
        for side in ("image", "text"):
            self.register_buffer(f"{side}_queue", F.normalize(torch.randn(width, queue), dim=0))
            self.register_buffer(f"{side}_ids", torch.zeros(queue, dtype=torch.long))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def before_step(self, step: ForwardPasses) -> None:
        if self.clamp:
            self.temperature.clamp_(0.001, 0.5)
        super().before_step(step)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        known = Known.of(step, self.view)
        texts, images = self.paired(step)
        with torch.no_grad():
            far_texts, far_images = self.paired(step.teacher, "{}" + COPY)
            all_texts, all_images = step.gather(far_texts), step.gather(far_images)
            right = self._right(known, texts.dtype)
        forth, scores = self._loss(images, far_images, torch.cat([all_texts.T, self.text_queue], 1), right, step)
        back, scores_back = self._loss(texts, far_texts, torch.cat([all_images.T, self.image_queue], 1), right, step)
        scores, scores_back = scores[:, : len(known.texts)], scores_back[:, : len(known.texts)]
        outputs = {**known.outputs(scores, scores_back), "new_texts": far_texts, "new_images": far_images}
        metrics = {"image_to_text": known.hits(scores), "temperature": Mean.of(self.temperature.detach()[None])}
        return ObjectiveOutput({"momentum-contrast": Mean.of((forth + back) / 2)}, outputs, metrics)

    def after_step(self, step: ForwardPasses, outcome: ObjectiveOutput) -> None:
        new = outcome.outputs
        order = dealt_order(step.gather(torch.tensor([len(new["own"])], device=new["own"].device)))
        texts, images = step.gather(new["new_texts"])[order], step.gather(new["new_images"])[order]
        size, count = self.text_queue.shape[1], len(texts)
        newest = slice(max(0, count - size), count)  # of a batch larger than the queue only the end fits
        columns = ((self.place + torch.arange(count, device=texts.device)) % size)[newest]
        self.text_queue[:, columns] = texts[newest].T.to(self.text_queue.dtype)
        self.image_queue[:, columns] = images[newest].T.to(self.image_queue.dtype)
        self.text_ids[columns] = new["texts"][order][newest]
        self.image_ids[columns] = new["images"][order][newest]
        self.place.copy_((self.place + count) % size)
        self.filled.copy_((self.filled + count).clamp(max=size))

    def _right(self, known: Known, dtype: torch.dtype) -> Tensor:
        # (B, N + K) which columns are right, in shares
        count, size = len(known.texts), self.text_queue.shape[1]
        columns = torch.arange(count + size, device=known.own.device)
        if self.same == "own":
            return (columns == known.own[:, None]).to(dtype)
        right = known.images[known.own][:, None] == torch.cat([known.images, self.image_ids])[None]  # (B, N + K)
        if self.same == "shared":
            right = right | (known.texts[known.own][:, None] == torch.cat([known.texts, self.text_ids])[None])
        shares = (right & (columns < count + self.filled)).to(dtype)
        return shares / shares.sum(1, keepdim=True)

    def _loss(
        self, rows: Tensor, far: Tensor, there: Tensor, right: Tensor, step: ForwardPasses
    ) -> tuple[Tensor, Tensor]:
        # (B,) losses and (B, N + K) scores of ``rows`` against all that is there
        scores = rows @ there / self.temperature
        share, targets = self.share(step), right.to(scores.dtype)
        if share > 0:
            with torch.no_grad():
                targets = share * (far @ there / self.temperature).softmax(1) + (1 - share) * targets
        return -(scores.log_softmax(1) * targets).sum(1), scores
