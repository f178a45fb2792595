"""Softmax classification of a sentence with its pictures; with labels softened by a momentum copy, too."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vlcli.data.numbering import label_names
from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, ForwardPasses, Model, build_head
from vlcli.objectives.answers import AnswerTable, class_ids, label_entropy
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, classified, full_precision
from vlcli.objectives.blanking import Only, seen
from vlcli.objectives.momentum import MomentumHeads, checked_share, momentum_copy, ramped, softened


class Classification(Objective):
    """Classify an example (sentence with one picture or several) into labels.

    The target is ``label``: an integer below ``classes``, or one of the label strings of the data where ``classes`` is
    left out. An example without a label counts for nothing.

    Args:
        classes: number of labels; None takes the strings of the data.
        images: pictures an example has (two for NLVR2), whose vectors are put side by side.
        head: a head of ``vlcli.nn.heads``; None takes the model's own (role ``pair`` for two pictures, else ``label``).
        only: what the model sees; ``text`` and ``images`` are controls.
        view: the view that is classified.
        smoothing: label smoothing.
        sigmoid: one score z of the second of two labels (LXMERT, appendix B): the logits are 0 and z, whose softmax is
            the sigmoid of z, and whose cross-entropy the binary one.
    """

    paper = "Suhr et al. 2019 (NLVR2); LXMERT, Tan and Bansal 2019, section 4.2"
    requires = frozenset({"fuse"})
    init_from = ("distilled-classification",)

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        classes: int | None = None,
        images: int = 1,
        head: str | None = None,
        only: Only = "both",
        view: str = "clean",
        smoothing: float = 0.0,
        sigmoid: bool = False,
    ) -> None:
        super().__init__(model, data_spec)
        self.names, self.count = data_spec.answers, classes or len(data_spec.answers)
        if not self.count:
            raise ComponentError(
                "The number of labels is not known.",
                where="objective classification",
                expected="`classes: N`, or data whose examples have a label",
            )
        if sigmoid and self.count != 2:
            what, hint = "A sigmoid tells two labels apart.", "leave `sigmoid` out"
            raise ComponentError(what, where="objective classification", got=f"{self.count} labels", hint=hint)
        self.numbered, self.images, self.sigmoid = classes is not None, images, sigmoid
        self.only, self.view, self.smoothing = only, view, smoothing
        parts = 1 if model.many_images else images
        role, outputs = "pair" if images == 2 else "label", 1 if sigmoid else self.count
        self.head = build_head(model, role, model.pooled_dim * parts, outputs, head)
        self.table, self.named = AnswerTable(() if self.numbered else data_spec.answers), False

    def setup(self, readers: Sequence[Any], tokenizer: Any, folder: Path | None) -> None:
        self.named = bool(label_names(readers))

    def logits(self, step: ForwardPasses) -> Tensor:
        """Return the logits (B, C)."""
        out: Tensor = self.head(step.fused(seen(step, self.view, self.only)).by_example())
        return F.pad(out, (1, 0)) if self.sigmoid else out

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        logits = self.logits(step)
        labels = self.numbers(step.batch.targets.get("label"), logits)  # (B,)
        loss, right = classified(full_precision(logits), labels, labels >= 0, self.smoothing)
        return ObjectiveOutput({"classification": loss}, {"logits": logits}, {"accuracy": right})

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        return {"logits": self.logits(step)}

    def constant_loss(self, targets: Sequence[Mapping[str, Any]]) -> float | None:
        index = {} if self.numbered else self.table.index
        return label_entropy(targets, index, self.count, self.smoothing, self.named)

    def numbers(self, values: Any, logits: Tensor) -> Tensor:
        """Return class ids (B,), -1 where an example has no label."""
        index = {} if self.numbered else self.table.index
        return class_ids(values, len(logits), index, self.count, self.named).to(logits.device)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return self.table.adapt(state, self.state_dict(), report)


class DistilledClassification(MomentumHeads, Classification):
    """Classify an example (sentence with one picture or several), softened by a momentum copy (ALBEF).

    The target is ``label``, as in ``classification``.

    Args:
        classes: number of labels; None takes the strings of the data.
        images: pictures an example has (two for NLVR2).
        head: a head of ``vlcli.nn.heads``; None takes the model's own (role ``pair`` for two pictures, else ``label``).
        only: what the model sees; ``text`` and ``images`` are controls.
        view: the view that is classified.
        distill: share of the momentum copy in the right answers.
        ramp: steps over which that share rises from 0.
        momentum: what the copy keeps of itself a step.
    """

    paper = "ALBEF, Li et al. 2021, sections 3.3 and 5 (SNLI-VE, NLVR2)"
    init_from = ("classification",)

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        classes: int | None = None,
        images: int = 1,
        head: str | None = None,
        only: Only = "both",
        view: str = "clean",
        distill: float = 0.4,
        ramp: int = 0,
        momentum: float = 0.995,
    ) -> None:
        super().__init__(model, data_spec, classes=classes, images=images, head=head, only=only, view=view)
        self.distill = checked_share(distill, "distilled-classification")
        self.teacher_momentum, self.ramp = momentum, ramp
        self.head_copy = momentum_copy(self.head)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        plain = super().forward(step, others)
        loss, share = plain.losses["classification"], ramped(self.distill, self.ramp, step.index)
        if share > 0:
            logits = full_precision(plain.outputs["logits"])
            labels = self.numbers(step.batch.targets.get("label"), logits)
            with torch.no_grad():
                fused = step.teacher.fused(seen(step, self.view, self.only))
                guess = full_precision(self.head_copy(fused.by_example())).softmax(1)  # (B, C)
            terms = F.cross_entropy(logits, labels, ignore_index=-1, reduction="none")
            loss = Mean.of(softened(terms, logits, guess, share), labels >= 0)
        return ObjectiveOutput({"distilled-classification": loss}, plain.outputs, plain.metrics)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        # a copy for other labels starts anew from its head
        fresh = self.state_dict()
        copies = {name: value for name, value in state.items() if name.startswith("head_copy.")}
        adapted = super().adapt({name: value for name, value in state.items() if name not in copies}, report)
        fits = all(name in fresh and fresh[name].shape == value.shape for name, value in copies.items())
        return {**adapted, **copies} if fits else adapted
