"""Softmax classification of a sentence with its pictures; with labels softened by a momentum copy, too."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.data.numbering import label_names
from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, ForwardPasses, Model, build_head
from vlcli.objectives.answers import LabelTable
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, classified, full_precision
from vlcli.objectives.blanking import Only, seen
from vlcli.objectives.momentum import MomentumHeads, momentum_copy, softened


class Classification(Objective):
    """Classify an example (sentence with one picture or several) into labels; one without ``label`` is left out.

    Args:
        classes: number of labels; None: the label strings of the data.
        images: pictures an example has (two for NLVR2), whose vectors are put side by side.
        head: a head of ``vlcli.nn.heads``; None: the model's own (role ``pair`` for two pictures, else ``label``).
        only: what the model sees; ``text`` and ``images`` are controls.
        view: the view that is classified.
        smoothing: label smoothing.
        sigmoid: one score z of the second of two labels (LXMERT, appendix B): the logits are 0 and z.
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
        count = classes or len(data_spec.answers)
        if not count:
            where, expected = "objective classification", "`classes: N`, or data whose examples have a label"
            raise ComponentError("The number of labels is not known.", where=where, expected=expected)
        if sigmoid and count != 2:
            what, hint = "A sigmoid tells two labels apart.", "leave `sigmoid` out"
            raise ComponentError(what, where="objective classification", got=f"{count} labels", hint=hint)
        self.only, self.view, self.smoothing, self.sigmoid = only, view, smoothing, sigmoid
        self.images = images  # an exported graph takes as many
        width = model.pooled_dim * (1 if model.many_images else images)
        self.head = build_head(model, "pair" if images == 2 else "label", width, 1 if sigmoid else count, head)
        self.table = LabelTable(() if classes is not None else data_spec.answers, count)

    def setup(self, readers: Sequence[Any], tokenizer: Any, folder: Path | None) -> None:
        self.table.named = bool(label_names(readers))

    def logits(self, step: ForwardPasses, head: nn.Module | None = None) -> Tensor:
        """Return the logits (B, C) of ``head``, or of the objective's head."""
        fused = step.fused(seen(step, self.view, self.only), rows="pooled")
        out: Tensor = (head or self.head)(fused.by_example())
        return F.pad(out, (1, 0)) if self.sigmoid else out

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        logits = self.logits(step)
        labels = self.labels_of(step)
        loss, right = classified(full_precision(logits), labels, labels >= 0, self.smoothing)
        return ObjectiveOutput({"classification": loss}, {"logits": logits}, {"accuracy": right})

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        return {"logits": self.logits(step)}

    def constant_loss(self, targets: Sequence[Mapping[str, Any]]) -> float | None:
        return self.table.entropy(targets, self.smoothing)

    def labels_of(self, step: ForwardPasses) -> Tensor:
        """Return class ids (B,), -1 where an example has no label."""
        return self.table.ids(step.batch.targets.get("label"), len(step.batch)).to(step.batch.seeds.device)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return self.table.adapt(state, self.state_dict(), report)


class DistilledClassification(MomentumHeads, Classification):
    """Classify as ``classification``, with labels softened by a momentum copy (ALBEF)."""

    paper = "ALBEF, Li et al. 2021, sections 3.3 and 5 (SNLI-VE, NLVR2)"
    init_from = ("classification",)

    def __init__(self, model: Model, data_spec: DataSpec, **options: Any) -> None:
        super().__init__(model, data_spec, **options)
        self.head_copy = momentum_copy(self.head)

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        plain = super().forward(step, others)
        loss, share = plain.losses["classification"], self.share(step)
        if share > 0:
            logits, labels = full_precision(plain.outputs["logits"]), self.labels_of(step)
            with torch.no_grad():
                guess = full_precision(self.logits(step.teacher, self.head_copy)).softmax(1)  # (B, C)
            terms = F.cross_entropy(logits, labels, ignore_index=-1, reduction="none", label_smoothing=self.smoothing)
            loss = Mean.of(softened(terms, logits, guess, share), labels >= 0)
        return ObjectiveOutput({"distilled-classification": loss}, plain.outputs, plain.metrics)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        # a copy for other labels starts anew from its head
        fresh = self.state_dict()
        copies = {name: value for name, value in state.items() if name.startswith("head_copy.")}
        adapted = super().adapt({name: value for name, value in state.items() if name not in copies}, report)
        fits = all(name in fresh and fresh[name].shape == value.shape for name, value in copies.items())
        return {**adapted, **copies} if fits else adapted
