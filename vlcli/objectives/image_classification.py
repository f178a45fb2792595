"""Classification of pictures alone: one label by softmax, with DeiT's regularisation, or several by sigmoids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vlcli.data.numbering import label_names
from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, EncoderOutput, ForwardPasses, Model, build_head
from vlcli.nn.batch import View
from vlcli.objectives.answers import LabelTable
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision
from vlcli.objectives.contrast import summary

MIXED = "mixed"


@dataclass(frozen=True)
class Mixing:
    """Mixes a batch with itself in reverse order by mixup or CutMix, with the draws of ``timm.data.Mixup`` by batch."""

    mixup: float = 0.0  # alpha of the Beta distribution of shares; 0 for no blending (Zhang et al. 2018).
    cutmix: float = 0.0  # the same for patches; 0 for none (Yun et al. 2019).
    probability: float = 1.0  # how often a batch is mixed
    switch: float = 0.5  # how often CutMix is taken where both are on

    @property
    def active(self) -> bool:
        return (self.mixup > 0 or self.cutmix > 0) and self.probability > 0

    def __call__(self, pixels: Tensor, seed: int) -> tuple[Tensor, float]:
        # pixels (B, 3, H, W) mixed with those in reverse order, and the share that each keeps
        rng, size = np.random.RandomState(seed), pixels.shape[-2:]
        if not self.active or rng.rand() >= self.probability:
            return pixels, 1.0
        patched = self.cutmix > 0 and (self.mixup == 0 or rng.rand() < self.switch)
        alpha = self.cutmix if patched else self.mixup
        share = float(rng.beta(alpha, alpha))
        if not patched:
            return pixels if share == 1.0 else pixels * share + pixels.flip(0) * (1 - share), share
        patch = []
        for length in size:
            at, cut = int(rng.randint(0, length)), int(length * np.sqrt(1 - share))
            patch.append(slice(max(at - cut // 2, 0), min(at + (cut + 1) // 2, length)))
        mask = torch.zeros(size, dtype=torch.bool)  # on the CPU, so that its mean waits for no accelerator
        mask[tuple(patch)] = True
        mixed = torch.where(mask.to(pixels.device), pixels.flip(0), pixels)
        return mixed, 1 - float(mask.double().mean())  # the edge may cut the patch


def soft_targets(labels: Tensor, classes: int, smoothing: float = 0.0) -> Tensor:
    """Return class ids (B,) as distributions (B, classes), ``smoothing`` spread over all classes; -1 gives zeros."""
    hot = F.one_hot(labels.clamp(min=0), classes)
    return ((1 - smoothing) * hot + smoothing / classes) * (labels >= 0)[:, None]


def batch_seed(seeds: Tensor) -> int:
    """Return one seed of a batch's seeds (B,), the same for any number of workers and in a resumed run."""
    return int(np.random.SeedSequence([value & (2**63 - 1) for value in seeds.tolist()]).generate_state(1)[0])


class ImageClassification(Objective):
    """Classify a picture into the labels of the data; label smoothing, mixup and CutMix while training.

    The target is ``label``: a class number, a label string, or a distribution over the classes. The scores are those
    of the model's own classifier where it has one, else of a head on its pooled vector.

    Args:
        classes: number of labels; None: the label strings of the data.
        head: a head of ``vlcli.nn.heads``, for a model without a classifier; None: the model's usual.
        smoothing: share of the target that is spread over all classes.
        mixup: alpha of mixup; 0 for none.
        cutmix: alpha of CutMix; 0 for none.
        mix_probability: how often a batch is mixed.
        switch: how often CutMix is taken where both are on.
        view: the view that is classified.
    """

    paper = "DeiT, Touvron et al., ICML 2021, Table 9"
    requires = frozenset({"image"})

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        classes: int | None = None,
        head: str | None = None,
        smoothing: float = 0.0,
        mixup: float = 0.0,
        cutmix: float = 0.0,
        mix_probability: float = 1.0,
        switch: float = 0.5,
        view: str = "clean",
    ) -> None:
        super().__init__(model, data_spec)
        count = classes or len(data_spec.answers) or model.own_classes
        where = "objective image-classification"
        if not count:
            expected = "`classes: N`, or data whose examples have a label"
            raise ComponentError("The number of labels is not known.", where=where, expected=expected)
        if model.own_classes and model.own_classes != count:
            hint = "let the data decide: model.classes=null (weights of other classes: allow_unmatched='^model.head')"
            what = "The model's classifier has another number of classes than the data."
            raise ComponentError(what, where=where, got=f"{model.own_classes} rows, {count} labels", hint=hint)
        self.head = None if model.own_classes else build_head(model, "label", self.dim, count, head)
        self.table = LabelTable(() if classes is not None else data_spec.answers, count)
        self.smoothing, self.view = smoothing, view
        self.mixing = Mixing(mixup, cutmix, mix_probability, switch)

    def setup(self, readers: Sequence[Any], tokenizer: Any, folder: Path | None) -> None:
        self.table.named = bool(label_names(readers))

    def logits(self, step: ForwardPasses, view: str) -> Tensor:
        """Return the logits (B, C)."""
        states = step.image(view)
        scores = states.extra["logits"] if self.head is None else self.head(self.summary(step, states))
        return scores[step.view(view).image_rows[:, 0]]

    def summary(self, step: ForwardPasses, states: EncoderOutput) -> Tensor:
        """Return one vector (M, D) for each picture. Raises ComponentError: the model has none."""
        if states.pooled is None:
            what = "The model gives no vector for a whole picture, and has no classifier of pictures."
            where, got = "objective image-classification", type(step.model).__name__
            expected = "a model whose encode_image gives `pooled` or scores: deit, swin, albef, vlmo"
            raise ComponentError(what, where=where, got=got, expected=expected)
        return states.pooled

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        targets = labels = self.targets(step)  # (B, C)
        view, share = self._mix(step) if step.training else (self.view, 1.0)
        if step.training:
            targets = (1 - self.smoothing) * labels + self.smoothing / self.table.count * labels.sum(1, keepdim=True)
            targets = targets * share + targets.flip(0) * (1 - share)
        logits = self.logits(step, view)
        known = targets.sum(1) > 0.5
        losses = -(targets * F.log_softmax(full_precision(logits), -1)).sum(-1)
        right = Mean.of((logits.argmax(1) == labels.argmax(1)).float(), known)
        metrics = {"accuracy": right} if share == 1 else {}
        return ObjectiveOutput({"image-classification": Mean.of(losses, known)}, {"logits": logits}, metrics)

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        return {"logits": self.logits(step, self.view)}

    def constant_loss(self, targets: Sequence[Mapping[str, Any]]) -> float | None:
        return None if self.mixing.active else self.table.entropy(targets, self.smoothing)

    def targets(self, step: ForwardPasses) -> Tensor:
        """Return the distribution of each example's label (B, C); zeros where it has none."""
        values = step.batch.targets.get("label")
        device = step.batch.seeds.device
        if isinstance(values, Tensor) and values.dim() == 2:
            if values.shape[1] != self.table.count:
                what, got = "A label has another number of classes.", f"{values.shape[1]} numbers"
                raise DataError(what, where="target label", got=got, expected=f"{self.table.count} classes")
            return values.to(device).float()
        return soft_targets(self.table.ids(values, len(step.batch)).to(device), self.table.count)

    def _mix(self, step: ForwardPasses) -> tuple[str, float]:
        # the view with mixed pictures, added once a step, and the share that each picture keeps
        view = step.view(self.view)
        if not self.mixing.active or view.images is None or view.images.pixels is None:
            return self.view, 1.0
        images = view.images.select(view.image_rows[:, 0])
        assert images.pixels is not None
        mixed, share = self.mixing(images.pixels.images, batch_seed(step.batch.seeds))
        images.pixels.images = mixed
        rows = torch.arange(len(mixed), device=mixed.device)
        step.batch.views[MIXED] = View(None, images, torch.full_like(rows, -1), rows[:, None])
        return MIXED, share

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return self.table.adapt(state, self.state_dict(), report)


class MultiLabel(ImageClassification):
    """Say of each class whether a picture has it, by binary cross-entropy; what is unknown counts for nothing.

    The targets are ``labels``, the names of the classes, and ``unknown_labels``; or one ``label`` an example. A model
    without a vector for a whole picture, such as LXMERT, gives the mean of its regions.
    """

    paper = ""

    def __init__(self, model: Model, data_spec: DataSpec, *, head: str | None = None, view: str = "clean") -> None:
        super().__init__(model, data_spec, head=head, view=view)

    def summary(self, step: ForwardPasses, states: EncoderOutput) -> Tensor:
        return summary(states)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        labels, logits = self.targets(step), self.logits(step, self.view)  # (B, C)
        known, truth = labels >= 0, labels.clamp(min=0)
        losses = F.binary_cross_entropy_with_logits(full_precision(logits), truth, reduction="none")
        right = Mean.of(((logits > 0) == truth.bool()).float(), known)
        return ObjectiveOutput({"multi-label": Mean.of(losses, known)}, {"logits": logits}, {"accuracy": right})

    def targets(self, step: ForwardPasses) -> Tensor:
        # (B, C): 1 where an example has a class, 0 where not, -1 where that is unknown
        labels = step.batch.targets.get("labels")
        if labels is None:
            single = super().targets(step)
            return torch.where(single.sum(1, keepdim=True) > 0, single, -1.0)
        unknown = step.batch.targets.get("unknown_labels") or [None] * len(labels)
        rows = [
            [-1.0 if names is None or name in (lacking or ()) else float(name in names) for name in self.table.answers]
            for names, lacking in zip(labels, unknown, strict=True)
        ]
        return torch.tensor(rows).to(step.batch.seeds.device)
