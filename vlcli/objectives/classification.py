"""Softmax classification of an example: its sentence with its picture, or with several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional

from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, ForwardPasses, Model, build_head
from vlcli.objectives.answers import AnswerTable
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision
from vlcli.objectives.blanking import Only, seen
from vlcli.objectives.labels import class_ids, label_entropy


class Classification(Objective):
    """Classify an example (sentence with one picture or several) into labels.

    The target is ``label``: an integer below ``classes``, or one of the label strings of the data where ``classes`` is
    left out. An example without a label counts for nothing.

    Args:
        model: the model it trains.
        data_spec: ``answers`` are the label strings.
        classes: number of labels; None takes the strings of the data.
        images: pictures an example has (two for NLVR2), whose vectors are put side by side.
        head: a head of ``vlcli.nn.heads``; None takes the model's own (role ``pair`` for two pictures, else ``label``).
        only: what the model sees; ``text`` and ``images`` are controls.
        view: the view that is classified.
        smoothing: label smoothing.
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
    ) -> None:
        super().__init__(model, data_spec)
        self.names, self.count = data_spec.answers, classes or len(data_spec.answers)
        if not self.count:
            raise ComponentError(
                "The number of labels is not known.",
                where="objective classification",
                expected="`classes: N`, or data whose examples have a label",
            )
        self.numbered, self.images = classes is not None, images
        self.only, self.view, self.smoothing = only, view, smoothing
        parts = 1 if model.many_images else images
        self.head = build_head(model, "pair" if images == 2 else "label", model.pooled_dim * parts, self.count, head)
        self.table = AnswerTable(() if self.numbered else data_spec.answers)

    def logits(self, step: ForwardPasses) -> Tensor:
        """(B, C)."""
        out: Tensor = self.head(step.fused(seen(step, self.view, self.only)).by_example())
        return out

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        logits = self.logits(step)
        labels = self.numbers(step.batch.targets.get("label"), logits)
        known = labels >= 0
        terms = functional.cross_entropy(
            full_precision(logits), labels, ignore_index=-1, reduction="none", label_smoothing=self.smoothing
        )
        right = (logits.argmax(1) == labels).float()
        return ObjectiveOutput(
            {"classification": Mean.of(terms, known)}, {"logits": logits}, {"accuracy": Mean.of(right, known)}
        )

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``logits`` (B, C)
        return {"logits": self.logits(step)}

    def constant_loss(self, targets: Sequence[Mapping[str, Any]]) -> float | None:
        return label_entropy(targets, {} if self.numbered else self.table.index, self.count, self.smoothing)

    def numbers(self, given: Any, logits: Tensor) -> Tensor:
        """(B,) class ids, -1 where an example has no label.

        Raises:
            DataError: a label that is none of the classes.
        """
        index = {} if self.numbered else self.table.index
        return class_ids(given, len(logits), index, self.count).to(logits.device)

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return self.table.adapt(state, self.state_dict(), report)
